"""Putting a new version in service, through a gate of figures, and back.

Begin with ``changes``. No request is dropped.
"""
