"""From a release to a bundle, or to one person's file.

Begin with ``released_model``. Keyboards, classifiers and voices go one way; each kind states what
is its own. May import all below it, down to ``faces``; torch is loaded for releases alone, since a
device makes its owner's files without it.
"""
