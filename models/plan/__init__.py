"""The plan of a round: what a device is told to train, with which roles and stages.

Begin with ``plan``. Loads no torch, since the resting device checks plans. A plan is decoded
strictly and has one digest; both ends compute the same one.
"""
