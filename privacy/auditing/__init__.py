"""Estimators that read the scores of canaries and bound epsilon from below.

Begin with ``judgement``. Pure statistics: no model, no torch and no file of a federation. Stands
above ``accounting``, ``clipping`` and ``foundation``.
"""
