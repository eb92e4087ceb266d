"""Measures of a voice that need no listeners: distances, recognised letters, pitch.

Begin with ``recogniser`` for intelligibility and ``mel_cepstrum`` for distances. Imports networks,
layers and ``text``; needs torch. Simulations use it; no device loads it.
"""
