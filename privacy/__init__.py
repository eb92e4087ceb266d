"""Bytes and budgets: sealed messages, identities, noise, clipping and what they cost.

The floor below every other package: it imports only ``protos`` and libraries, and it alone touches
``cryptography``. Districts, from the top: ``commands`` and ``sealing``; ``auditing``,
``example_level``, ``identities`` and ``noise``; ``accounting``, ``clipping`` and ``foundation``.
Begin with ``sealing.envelope`` for what travels and with ``noise.mode`` for what a noise mode must
answer.
"""
