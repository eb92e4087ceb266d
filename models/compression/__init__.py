"""Forms in which updates and releases travel: fewer bits, fewer values, zstd.

Begin with ``update_format`` for updates and ``release_delta`` for releases. Imports ``plan``,
``settings`` and ``vector``; loads no torch. A decoded update has exactly the size that the plan
implies, and anything else is refused before memory is taken.
"""
