"""The helper, the second party of masked sums: run by somebody else, it never sees an update.

Begin with ``service``, which answers the coordinator, then ``answers``, which holds what was
answered. ``cli`` is the command ``sotto-helper``. Imports ``records`` for threads and failpoints,
``privacy`` and ``protos``; no torch, and nothing that the coordinator decides with. It answers once
for a run, round, attempt and group, and what it answered is on the disk before it is told.
"""
