"""Training on several cores, or many small clients at once on one.

Begin with ``pool``. One worker or many give the same bits.
"""
