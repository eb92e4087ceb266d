"""Forms in which updates and releases travel: fewer bits, fewer values, zstd.

Begin with ``update_format``. What does not need torch is read without it. A decoded update has the
exact size that its header announced, or it is refused before memory is taken.
"""
