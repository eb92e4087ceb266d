"""Suggestions by onnxruntime and numpy alone.

Begin with ``word_graph``, then ``strip``. It is all that a phone needs.
"""
