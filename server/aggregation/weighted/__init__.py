"""Rules that sum updates by weights: FedAvg and attention (FedAtt, Eqs. 4 to 6).

Begin with ``weighted_rule``. It may import the root of ``server.aggregation``.
"""
