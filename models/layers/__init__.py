"""What networks are built of: attention, recurrences, convolutions, dropout.

Begin with ``attention``. Needs torch; knows settings, and no family of networks. Random numbers
come from the generator that the caller holds, so that runs repeat to the bit.
"""
