"""Rules that join a cohort's updates: ``weighted`` rules stream, ``robust`` ones read it again.

Begin with ``registry`` and ``rule``. Rules know flat vectors and slots, and no device, store or
socket; settings load no torch. It may import models and privacy. The same updates give the same
bits, in whatever order they arrived.
"""
