"""What a round may spend, and its entries in the ledger.

Begin with ``round_gate``. Nothing is released that was not entered before, in the same transaction.
"""
