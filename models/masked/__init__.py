"""The masked vector of a device: what lies where, on which grid, and the payload it travels in.

Begin with ``layout``. Imports ``plan``, ``settings``, ``vector`` and ``privacy``; loads no torch,
since the resting device checks plans. Both ends derive all of it from the plan, so a vector of
another length or grid cannot come from an honest device.
"""
