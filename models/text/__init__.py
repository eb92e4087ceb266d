"""Letters and words, and how English is spoken.

Begin with ``words`` and ``vocabulary`` for keyboards, with ``spoken_text`` for voices. Imports
nothing of this package; loads no torch. Text typed on a device is read here and goes no further.
"""
