"""Rules that join updates: ``weighted`` ones stream, ``robust`` ones read a cohort again.

Begin with ``registry`` and ``rule``. Knows flat vectors and slots, and no device, store or socket.
The same updates give the same bits, in whatever order they arrived.
"""
