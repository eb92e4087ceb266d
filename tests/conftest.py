"""What holds for every test."""

from hypothesis import settings

# A busy machine, or the first import of a library, is slow and not wrong: nothing here is timed.
# The same examples every time: what makes a test fail is a change.
settings.register_profile("sotto", deadline=None, derandomize=True)
settings.load_profile("sotto")
