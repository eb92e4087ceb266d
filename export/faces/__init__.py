"""The inputs and outputs of every graph: names, types and shapes.

Begin with ``family``. The lowest floor of ``export``, where the writer and the runner of a graph
agree; imports ``models`` alone, neither torch nor onnx.
"""
