"""The wire contract, its generated code, its version and its refusals.

``federation.proto`` and ``keyboard.proto`` are the contract; ``generate`` makes the ``*_pb2*``
files, which are never edited. Imports nothing of the project. A code or a field's number never
changes its meaning.
"""
