"""The drivers of rounds, fits and evaluations, which give each device its work.

Begin with ``keeper``. Joins the state machine to store, devices and clock.
"""
