"""The privacy budget of a run: the allowance of a round, and its entries in the ledger.

Begin with ``round_gate``. It blocks, and may import records, devices, config and what they stand
on. Nothing is released that was not entered before, or in the same transaction.
"""
