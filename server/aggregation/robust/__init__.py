"""Rules that withstand bad clients: medians, trimmed means, Krum, trimmed attention.

Begin with ``registry``, then ``chunked_rule`` and ``reduction``. It may import the root of
``server.aggregation``. Updates are read 1 MiB at a time, so memory does not grow with the model.
"""
