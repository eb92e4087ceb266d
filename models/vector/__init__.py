"""The flat vector: its schema, bytes, digests and files.

Begin with ``schema``. Imports nothing of this package and loads no torch. Names, order, types,
shapes and the exact byte count are checked before memory is taken.
"""
