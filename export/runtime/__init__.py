"""Suggestions by onnxruntime and numpy alone.

Begin with ``word_graph``, then ``strip``. What a phone needs, and nothing more.
"""
