"""gRPC calls in, answers out.

Begin with ``devices``. Each call is admitted by its certificate and bounded before anything is
parsed.
"""
