"""From opened updates to the next parameters: screening, summing, noise, the server's step.

Begin with ``close``. It may import aggregation, personalisation and config, and knows no store,
device or socket: a simulation closes its rounds with the same functions, to the same bits.
"""
