"""Import onnxruntime so that it tells nobody what it runs.

Since 1.29 its official builds for Linux, macOS and Android send its maker a message for each
process and each model (names, digests and sizes of the graph, the machine), from a cache and under
an identifier that it keeps in the home folder. A variable of the environment, read when the library
is loaded, switches all of that off.

References:
    onnxruntime, pull requests 27379 and 29843.
"""

import os
from types import ModuleType


def load_onnxruntime() -> ModuleType:
    """Return onnxruntime; ImportError if it is not installed."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    runtime: ModuleType = onnxruntime
    return runtime
