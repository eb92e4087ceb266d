"""From a release to a bundle, or to one person's file.

Begin with ``released_model``. Keyboards, classifiers and voices go one way; each kind states what
is its own.
"""
