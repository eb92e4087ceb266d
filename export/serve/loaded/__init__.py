"""Versions and people in memory, ready to answer.

Begin with ``keyboard_version``. A version in use stays until its last request ends.
"""
