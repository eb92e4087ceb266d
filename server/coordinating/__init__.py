"""The drivers of rounds, fits and evaluations, between state machine, store, devices and clock.

Begin with ``keeper``.
"""
