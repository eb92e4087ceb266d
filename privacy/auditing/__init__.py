"""Estimators that read the scores of canaries and bound epsilon from below.

Begin with ``judgement``, which puts them together. Pure statistics: no model, no torch and no file
of a federation. Imports ``accounting`` alone. Every answer can refute a claim; none proves one.
"""
