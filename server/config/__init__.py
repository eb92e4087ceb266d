"""The federation's file, and the settings that it refuses together.

Begin with ``federation``; ``rules`` lists what no single struct can see. It may import
aggregation's
settings, models and privacy, and loads no torch. Every refusal names value, rule and remedy.
"""
