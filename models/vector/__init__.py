"""The flat vector: its schema, bytes, digests and files.

Begin with ``schema``. Loads no torch, except where a function is given tensors. Names, order,
types, shapes and the exact byte count are checked before memory is taken.
"""
