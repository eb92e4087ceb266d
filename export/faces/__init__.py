"""The inputs and outputs of every graph: names, types and shapes of inputs and outputs.

Begin with ``family``. The lowest floor of ``export``: the writer and the runner of a graph agree on
it here.
"""
