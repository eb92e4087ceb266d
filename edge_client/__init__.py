"""The device: a resting agent without torch, and a child process that trains.

Imports ``models``, ``privacy`` and ``protos``. The command line is ``cli``; begin with
``agent.agent`` for what rests and with ``child.work`` for what trains. A person's examples never
leave the process that trains.
"""
