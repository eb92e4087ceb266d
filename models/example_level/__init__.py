"""Clipped sums of per-example gradients that are never made one by one.

Begin with ``clipped_sums``. Stands on the networks and their layers; needs torch.
"""
