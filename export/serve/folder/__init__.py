"""The files that a server keeps: versions, people, tokens.

Begin with ``folder``. A change is whole or did not happen.
"""
