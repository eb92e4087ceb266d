"""What a round leaves behind, on disk and in the store.

Begin with ``publishing``. A release is whole and signed, or it is not there.
"""
