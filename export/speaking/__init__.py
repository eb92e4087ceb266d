"""Speech by onnxruntime and numpy alone.

Begin with ``voice``, then ``stream``. Loads no torch; may import ``bundles``, ``graphs`` and
``runtime``. Sound that is made piece by piece is the sound of the whole.
"""
