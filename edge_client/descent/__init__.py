"""Steps downhill, for every method and task.

Begin with ``descent``. Knows a loss and parameters, and nothing of rounds.
"""
