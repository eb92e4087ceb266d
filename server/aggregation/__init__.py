"""Rules that join a cohort's updates: ``weighted`` rules stream, ``robust`` ones read it again.

Begin with ``registry`` and ``rule``. It may import models and privacy; settings load no torch. The
same updates give the same bits, in whatever order they arrived.
"""
