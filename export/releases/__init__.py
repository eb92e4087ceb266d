"""Reads what the coordinator released, without the coordinator's code.

Begin with ``release``. Digests and signatures are checked before anything is used.
"""
