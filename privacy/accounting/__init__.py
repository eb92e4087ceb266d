"""What a run released, and what that costs in epsilon and delta.

Begin with ``accountant``, which asks two independent accountants and refuses to answer where they
disagree; ``ledger`` keeps the releases that they count. Imports no other district. SciPy and
dp-accounting are loaded only when something is counted.
"""
