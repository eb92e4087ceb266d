"""Rules that sum updates by weights: FedAvg and attention (FedAtt, Eqs. 4 to 6).

Begin with ``weighted_rule``. One update is in memory at a time.
"""
