"""The owner's terms: when a device works, how much it sends, what it accepts.

Begin with ``floor`` and ``policy``. Loads no torch. A plan below the floor is refused, with the
line of ``floor.toml`` that would let it through.
"""
