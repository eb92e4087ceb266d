"""A sealed update, from its first chunk to the sum; it counts once, and only when it is durable.

Begin with ``acceptance``.
"""
