"""Self-contained pages about models: tables, pictures and proofs that open in any browser.

Begin with ``document``. A page loads nothing: its style and its pictures (SVG) stand in it, it has
no script, and every text is escaped. Knows no run and no coordinator; imports ``tasks`` for the
figures by which models are judged, and needs no torch but to account for a ledger.
"""
