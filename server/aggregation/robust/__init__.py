"""Rules that withstand bad clients: medians, trimmed means, Krum, trimmed attention.

Begin with ``registry`` and ``chunked_rule``. It may import the root of ``server.aggregation``.
"""
