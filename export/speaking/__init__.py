"""Speech by onnxruntime and numpy alone.

Begin with ``voice``, then ``stream``. Loads no torch.
"""
