"""The rounds themselves, driven by the coordinator's parts.

Begin with ``federation``; ``attendance`` says who comes and how many of those send.
"""
