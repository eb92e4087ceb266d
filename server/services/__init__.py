"""gRPC calls in, answers out, each admitted by its certificate and bounded before it is parsed.

Begin with ``devices``.
"""
