"""Versions and people in memory, ready to answer.

Begin with ``keyboard_version`` and ``shelf``; may import ``folder``. A version in use stays until
its last request ends, and a new one is tried before anybody gets it.
"""
