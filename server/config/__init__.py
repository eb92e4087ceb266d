"""The federation's file, and what it refuses together.

Begin with ``federation``. Loads no torch; every refusal names value, rule and remedy.
"""
