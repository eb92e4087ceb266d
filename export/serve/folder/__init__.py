"""The files that a server keeps: versions, people, tokens, settings.

Begin with ``folder``. The lowest room of ``serve``: imports nothing of it. A change is whole or did
not happen.
"""
