"""Rounds as state machines, without clock, socket, disk, store or torch.

Begin with ``rounds``. Times and random coins are arguments, so every interleaving can be tested.
"""
