"""The federation's file, and the settings that it refuses together, with value, rule and remedy.

Begin with ``federation``. Imports settings of aggregation, models and privacy; loads no torch.
"""
