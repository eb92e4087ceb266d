"""What holds for every test."""

from hypothesis import settings

# A busy machine, or the first import of a library, is slow and not wrong: nothing here is timed.
settings.register_profile("sotto", deadline=None)
settings.load_profile("sotto")
