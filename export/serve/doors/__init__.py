"""HTTP and gRPC in, answers out.

Begin with ``desk``, behind which both faces share everything. Each request has bounded time and
room.
"""
