"""How far one person can move the aggregate: norms, layers and an adaptive clipping norm.

Begin with ``sensitivity``, which proves the bound that every noise mode is calibrated to. Imports
no other district; only ``clip`` and ``by_layer`` need torch. A clipped update never has a larger
norm than its settings say.
"""
