"""A round's release, on disk and in the store: whole and signed, or not there.

Begin with ``publishing``. It may import devices, records, closing, personalisation and config.
"""
