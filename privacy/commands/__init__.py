"""The subcommands of ``sotto-privacy``.

Begin with ``budget``. They turn settings into answers that a person reads; what they compute lives
below. Help and refusals load neither torch nor SciPy.
"""
