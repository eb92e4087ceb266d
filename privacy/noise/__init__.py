"""The noise modes, one file each, and the coins that they draw.

Begin with ``mode``, the contract, and ``registry``, which names each mode once. Imports
``accounting`` and ``clipping``; files named ``*settings`` load no torch. A guarantee always names
the parameters that it was calibrated to.
"""
