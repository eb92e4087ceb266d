"""The enrolled devices, their certificates and their streams.

Begin with ``membership``.
"""
