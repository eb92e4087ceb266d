"""Samples, spectra and mels, and the way back to sound by Griffin-Lim.

Begin with ``mel``. Imports ``settings``. ``mel_filters`` and ``griffin_lim`` are numpy alone, for
devices and bundles; training uses torch.
"""
