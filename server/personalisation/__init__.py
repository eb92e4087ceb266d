"""The coordinator's half of each personalisation method; the devices' is ``edge_client``'s.

Begin with ``method``, the contract, and ``registry``. It may import models, privacy and
aggregation, and knows no store, device or socket.
"""
