"""The releases of a run, and their cost in epsilon and delta.

Begin with ``events`` for what can be released and ``accountant``, which asks two independent
accountants and refuses to answer where they disagree; ``ledger_chain`` keeps the events. Imports
no other district; SciPy, dp-accounting and Opacus (with torch) are loaded only to count. Every
epsilon is an upper bound.
"""
