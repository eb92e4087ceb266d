"""Samples, spectra and mels, and the way back by Griffin-Lim.

Begin with ``mel``. Training uses torch; what a device or a bundle needs is numpy alone.
"""
