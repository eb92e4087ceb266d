"""Settings that only a simulation has, and the presets.

Begin with ``simulation``. Everything else is the federation's own file.
"""
