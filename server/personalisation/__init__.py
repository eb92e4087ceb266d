"""The coordinator's half of each personalisation method; the devices' is ``edge_client``'s.

Begin with ``method`` and ``registry``. It may import models, privacy and aggregation.
"""
