"""Calls to the coordinator.

Begin with ``transport``. Loads no torch; the only district of the device that speaks gRPC.
"""
