"""Suggestions by onnxruntime and numpy alone: all that a phone needs.

Begin with ``word_graph``, then ``strip``. Loads neither torch nor onnx; may import ``faces`` and
``models.text``. Typed text stays in memory.
"""
