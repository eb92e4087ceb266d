"""The work of each subcommand of ``sotto-export``.

Begin with ``bundles``. Heavy libraries are loaded by the subcommand that needs them.
"""
