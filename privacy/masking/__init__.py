"""Updates that hide each other in a sum: a grid, shares of noise, keystreams and packed integers.

Begin with ``mask``, what a device does to its message and a coordinator to the sum; ``grid``
chooses step, width and noise and proves what rounding costs, ``discrete_gaussian`` draws the noise
exactly. ``sealed_seed`` carries a mask's seed to the helper, which signs a ``helper_answer``.
Imports ``accounting``, ``sealing``, ``noise`` and what lies below, but no torch: numpy and
``cryptography`` are enough. Sums are exact integers modulo a power of two, the same in any order.
"""
