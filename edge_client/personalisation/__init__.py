"""The device's half of each personalisation method.

Begin with ``method``, the contract. The coordinator's half is ``server.personalisation``.
"""
