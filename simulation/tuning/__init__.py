"""The search for noise, clipping, cohort and step at a target epsilon.

Begin with ``study``; on private data it is a random number of runs, which is paid for.
"""
