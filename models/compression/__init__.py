"""Forms in which updates, releases and starting models travel: fewer bits, fewer values, zstd.

Begin with ``update_format`` for updates, ``release_delta`` for releases and ``packed_model`` for
the file of a starting model. Imports ``plan``, ``settings`` and ``vector``; loads no torch. What is
decoded has exactly the size that plan or model implies, and anything else is refused before memory
is taken.
"""
