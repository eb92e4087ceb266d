"""Inputs and outputs of every exported image classifier.

Input ``pixels``: images as bytes, uint8, shape ``(batch, height, width, channels)``, ``batch``
free; the graph normalises them. ``personal.<name>``: a person's own tensors, as in
`export.faces.words`. Output ``log_probabilities``: nats, float32, shape ``(batch, classes)``.
"""

PIXELS = "pixels"
