"""Canaries through the coordinator's own close, and what a model remembers.

Begin with ``audit``. Estimators live in ``privacy.auditing``.
"""
