"""The coordinator: rounds, devices, budgets and releases.

Imports ``models``, ``privacy`` and ``protos``; never a device's code, so no path leads from here to
a user's text. Composed in ``operating.running``; the command line is ``cli``. Begin with
``machine.rounds`` for the rules of a round and with ``coordinating.keeper`` for what drives it.
"""
