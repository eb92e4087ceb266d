"""Who is enrolled, with which certificates, on which stream.

Begin with ``membership``. A revoked certificate is refused at the next call.
"""
