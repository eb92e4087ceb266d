"""The noise modes, one file each, and the coins that they draw.

Begin with ``mode``, the contract, and ``registry``, which names each mode once. Stands above
``accounting``, ``clipping`` and ``foundation``. A guarantee always names the parameters that it was
calibrated to.
"""
