"""A server of people's models over HTTP and gRPC.

Begin with ``running``. Rooms, from the top: ``doors`` and ``promotion``, ``loaded``, ``folder``.
Loads no torch.
"""
