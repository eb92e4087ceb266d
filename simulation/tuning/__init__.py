"""The search for noise, clipping, cohort and step at a target epsilon.

Begin with ``study``. On public data it is a search by Optuna, on private data a random number of
runs that is paid for.
"""
