"""Graphs of a voice: encoder, one frame of the decoder, vocoder.

Begin with the encoder. Imports ``export.graphs`` and ``export.faces`` alone.
"""
