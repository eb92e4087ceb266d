"""Every data set by its name: one person's words, images or recordings.

Begin with ``registry``. Sizes and counts are bounded before a file is read whole.
"""
