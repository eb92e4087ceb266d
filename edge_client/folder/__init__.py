"""The files that must survive a restart of a device.

Begin with ``layout``. Loads no torch; each file is whole or absent.
"""
