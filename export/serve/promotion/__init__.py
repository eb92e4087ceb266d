"""Putting a new version in service, through a gate of figures, and back.

Begin with ``changes``; may import ``loaded`` and ``folder``. What was judged is what is served, and
no request is dropped.
"""
