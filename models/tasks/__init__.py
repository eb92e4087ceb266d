"""What is learnt: batches, losses and figures of words, characters, images and speech.

Begin with ``registry``. A task knows its networks, and neither clients nor rounds.
"""
