"""A server of people's keyboards and voices over HTTP and gRPC.

Begin with ``running``. Rooms, from the top: ``doors`` and ``promotion``, ``loaded``, ``folder``.
Loads no torch. No request is dropped when another version is promoted, and no text of anybody's is
logged or kept on disk.
"""
