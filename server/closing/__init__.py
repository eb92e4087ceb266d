"""From opened updates to the next parameters: screening, summing, noise, the server's step.

Begin with ``close``. Knows no store, device or socket: a simulation closes with the same functions.
"""
