"""The plan of a round: what a device is to train, with which roles and stages.

Begin with ``plan``. Imports ``settings``, ``vector`` and ``privacy``; loads no torch, since the
resting device checks plans. A plan is decoded strictly, and both ends compute the same digest of
it. ``release_record`` and ``published_part`` are the files that follow from rounds.
"""
