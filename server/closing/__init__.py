"""From opened updates to the next parameters: screening, summing, noise, the server's step.

Begin with ``close``. No store, device or socket: a simulation closes its rounds with the same
functions.
"""
