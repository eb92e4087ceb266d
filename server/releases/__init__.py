"""A round's release, on disk and in the store.

Begin with ``publishing``; ``files`` says what lies in a release's folder. It may import devices,
records, closing, personalisation and config. A release is whole and signed, or it is not there.
"""
