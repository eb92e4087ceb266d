"""HTTP and gRPC in, answers out.

Begin with ``desk``, behind which both faces share everything; may import ``loaded`` and ``folder``.
Each request has bounded time and room, and errors hold no text of anybody's.
"""
