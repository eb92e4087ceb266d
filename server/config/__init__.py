"""The federation's file, and the settings that it refuses together.

Begin with ``federation``. It may import the settings of aggregation, models and privacy, and
loads no torch. Every refusal names value, rule and remedy.
"""
