"""The coordinator's half of each personalisation method.

Begin with ``method``, the contract, and ``registry``. The devices' half is
``edge_client.personalisation``.
"""
