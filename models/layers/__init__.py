"""Building blocks of networks: attention, recurrences, convolutions, dropout, initialisation.

Begin with ``attention``. Needs torch; imports ``settings``, and no family of networks. Random
numbers come from the caller's generator, so that runs repeat to the bit.
"""
