"""A sealed update, from its first chunk to the sum.

Begin with ``acceptance``. An update counts once, however often it is sent, and only when it is
durable.
"""
