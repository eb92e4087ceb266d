"""What each subcommand of ``sotto-export`` does.

Begin with ``bundles``. Heavy libraries are loaded by the subcommand that needs them.
"""
