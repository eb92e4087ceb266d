"""ONNX graphs, written node by node from a schema and parameters.

Begin with ``writer`` and ``registry``. Loads no torch: ``parity`` holds each graph against it.
"""
