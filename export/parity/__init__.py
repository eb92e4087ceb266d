"""Each written graph held against torch, on the same inputs.

Begin with ``words``. A bundle whose graph disagrees is not written.
"""
