"""The enrolled devices, with their certificates and streams.

Begin with ``membership``. A revoked certificate is refused at the next call.
"""
