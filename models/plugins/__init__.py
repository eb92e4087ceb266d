"""Plugins: packages with families, tasks and rules of their own, loaded where a file names them.

Begin with ``loaded``, the set that this process has loaded. Lowest of all with ``text`` and
``vector``, so that settings, networks and tasks find a plugin's part by its name. No torch: halves
that need it are imported when they are asked for. The guide is ``docs/plugins.md``.
"""
