"""Clipped sums of per-example gradients, computed without making any single gradient.

Begin with ``clipped_sums``. Imports networks, their layers and the tasks' text streams; needs
torch. A layer whose per-example gradients are not known to be right is refused by ``recording``.
"""
