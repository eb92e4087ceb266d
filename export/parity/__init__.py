"""Each written graph compared with torch, on the same inputs.

Begin with ``words``; ``checked_graph`` makes graphs of every kind. Loads torch, onnx and
onnxruntime when it compares. A bundle whose graph disagrees is not written.
"""
