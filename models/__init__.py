"""Tensors and what describes them: networks, settings, the plan of a round, codecs and tasks.

Server, device and export all use it; it imports ``privacy`` and ``protos`` only. Districts, from
the top: ``example_level``; ``listening``, ``personal`` and ``tasks``; ``compression`` and
``networks``; ``layers``, ``plan`` and ``sound``; ``data`` and ``settings``; ``text`` and
``vector``. Begin with ``vector.schema``: parameters and updates are one flat float32 vector
everywhere.
"""
