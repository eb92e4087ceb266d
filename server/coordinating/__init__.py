"""What drives rounds, fits and evaluations, and gives each device its work.

Begin with ``keeper``. Joins the state machine to store, devices and clock.
"""
