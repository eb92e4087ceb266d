"""Graphs of a voice: the text's encoder, one step of the decoder, post-net and vocoder.

Begin with ``voice``, which puts them together. Imports ``export.graphs`` and ``export.faces``, and
no torch.
"""
