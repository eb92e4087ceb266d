"""Letters and words, and how English is spoken.

Begin with ``words`` and ``vocabulary``. Loads no torch; what is typed on a device is read here and
goes no further.
"""
