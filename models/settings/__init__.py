"""What each family of networks can be told, with bounds and units.

Begin with ``model``. Loads no torch; a value out of its bounds is refused with its name, rule and
remedy.
"""
