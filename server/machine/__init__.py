"""Rounds as state machines, without clock, socket, disk or store.

Begin with ``rounds``. Times and random coins are arguments, so every interleaving can be tested.
"""
