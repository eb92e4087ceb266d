"""The process that trains: reads jobs from standard input, writes outcomes to standard output.

It ends when its parent does, even if the parent was killed: a thread watches for the end of input.
"""

import os
import queue
import sys
import threading
from typing import BinaryIO

from edge_client.jobs.job import decode_job, encode


def main() -> None:
    """Serve jobs until standard input ends."""
    # Libraries that print must not garble the outcomes.
    outcomes = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, jobs), daemon=True).start()

    # Torch takes a second to load; the reader above is already watching the parent.
    from edge_client.child.work import do_job

    while True:
        outcome = do_job(decode_job(jobs.get()))
        outcomes.write(encode(outcome) + b"\n")
        outcomes.flush()


def _read(source: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    for line in source:
        jobs.put(line)
    # Not sys.exit: the main thread may be deep in a training step that nobody waits for.
    os._exit(0)


if __name__ == "__main__":
    main()
