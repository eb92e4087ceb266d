"""ONNX graphs, written node by node from a schema and parameters.

Begin with ``writer`` and ``registry``. Loads onnx and no torch; may import ``faces`` and
``models``. ``parity`` compares each graph with torch.
"""
