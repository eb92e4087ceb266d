"""The sealed message, from its signed header to its last encrypted chunk.

Begin with ``envelope``, then ``seal`` and ``unseal``. Imports ``foundation`` and ``identities``; no
torch. Bytes that were not authenticated are never handed on, and memory stays at one chunk whatever
a message's size.
"""
