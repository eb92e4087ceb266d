"""The keyboard under a guarantee, from the public start: crowds, budgets, and what they cost.

Begin with ``cells``: every crowd and budget, and the noise multiplier that keeps it. ``rows`` makes
runs of them, with the noise of the crowd added to the few people at hand, as the tuner does it.
``page`` writes the table, and has the accountant count every cell's epsilon again. The command is
``benchmarks.keyboard_guarantee``.
"""
