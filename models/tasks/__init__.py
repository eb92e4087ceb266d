"""Tasks: batches, losses and figures for words, characters, images, sequences and speech.

Begin with ``registry``, which has the protocol and the table of tasks. Imports networks, ``plan``
and ``sound``; needs torch. A task knows its networks, and neither clients nor rounds.
"""
