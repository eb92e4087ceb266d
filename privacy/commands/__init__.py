"""The answers of ``sotto-privacy``.

Begin with ``budget`` and ``explain``; ``budget_flags`` has the settings that make the flags.
Imports every district but ``sealing`` and ``identities``. An answer is the same in words and in
JSON; no command needs a coordinator or a device.
"""
