"""Name what every exported image classifier takes and gives.

Input ``pixels``: images as bytes, uint8, shape ``(batch, height, width, channels)``, ``batch``
free; the graph normalises them itself. ``personal.<name>``: a person's own tensors, as
`export.faces.words` says. Output ``log_probabilities``: of every class in nats, float32, shape
``(batch, classes)``.
"""

PIXELS = "pixels"
