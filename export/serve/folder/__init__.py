"""What a server keeps on disk: versions, people, tokens.

Begin with ``folder``. A change is whole or did not happen.
"""
