"""The entry point of ``sotto-server``: say which extra is missing before its command is read."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status, or 1 if the server extra is not installed."""
    try:
        # Here, because settings alone need numpy, and a device's installation has none.
        from server.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"sotto-server: {error.name} is missing; install sotto[server]\n")
        return 1
    return run(argv)
