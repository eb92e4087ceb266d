"""Rounds as state machines, without clock, socket, disk or store.

Begin with ``rounds``. It may import config; no torch. Times and random coins are arguments, so
every interleaving can be tested, and coordinator and simulation drive the same machine.
"""
