"""Keep worker processes busy, and hand their answers on in the order of the jobs.

The order of finishing changes nothing: one worker and eight give the same bits.
"""

import multiprocessing
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from simulation.workers.engine import WorkerError
from simulation.workers.jobs import Answer, Job, Setting
from simulation.workers.process import serve
from simulation.workers.shared_buffers import GROUPS_PER_WORKER

# Imported once, before the workers are forked. Torch imports its compiler when the first network
# or optimiser is made, which would cost each worker more than a second.
_PRELOADED = ["edge_client.training.local_round", "torch._dynamo"]

_MOMENT_S = 0.5
_SHORT_GROUP_S = 0.02
_SHORT_GROUPS_PER_WORKER = 4

Fill = Callable[[Job], None]
"""Put into a job's buffer what its worker finds there."""


class WorkerProcesses:
    """Processes of one thread each, and the pipes to them."""

    def __init__(self, setting: Setting, worker_count: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._buffer_count = len(setting.tensors.updates)
        self._processes: dict[Connection, ForkServerProcess] = {}
        self._readable = selectors.DefaultSelector()
        for _ in range(worker_count):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, setting), daemon=True)
            process.start()
            theirs.close()
            self._processes[ours] = process
            self._readable.register(ours, selectors.EVENT_READ)

    def close(self) -> None:
        """Let the processes finish what they do and end them."""
        self._readable.close()
        for connection in self._processes:
            with suppress(OSError):
                connection.send(None)
            connection.close()
        for process in self._processes.values():
            process.join()

    def terminate(self) -> None:
        """End the processes whatever they do."""
        for process in self._processes.values():
            process.terminate()

    def run(self, groups: Sequence[Sequence[Job]], fill: Fill | None) -> Iterator[Answer]:
        """Have groups of jobs done, and yield the answers in the jobs' order.

        Args:
            groups: Jobs that one worker does together; positions count from 0 over all of them.
            fill: Makes a job's buffer ready; None where the jobs need no buffer.

        Raises:
            WorkerError: If a job failed, or a process died.
        """
        call = _Call(deque(groups), fill, dict.fromkeys(self._processes, 0), self._buffer_count)
        try:
            for job in chain.from_iterable(groups):
                call.send()
                while job.position not in call.answers:
                    self._receive(call)
                    call.send()
                answer = call.answers.pop(job.position)
                if answer.failure is not None:
                    raise WorkerError(f"{', '.join(job.names)}: {answer.failure}")
                yield answer
                call.release(answer)
        except (WorkerError, GeneratorExit):
            # The processes stay usable: what was under way must not answer the next call. Not for
            # an interrupt, whose user waits for no client.
            while any(call.busy.values()):
                self._receive(call)
            raise

    def _receive(self, call: "_Call") -> None:
        """Wait a moment for answers, and take all that are there."""
        # Not for ever: on a cluster's node an interrupt ends no wait.
        ready = {key.fileobj for key, _ in self._readable.select(_MOMENT_S)}
        if not ready:
            self._check_alive(call)
        for connection in [one for one in call.busy if one in ready]:
            try:
                group: list[Answer] = connection.recv()
            except (EOFError, ConnectionResetError):
                raise self._death_of(call, connection) from None
            call.take(connection, group)

    def _check_alive(self, call: "_Call") -> None:
        """Find a process that ended though its pipe did not: another process may hold it open.

        Raises:
            WorkerError: If there is one.
        """
        for connection, busy in call.busy.items():
            if busy and not self._processes[connection].is_alive():
                raise self._death_of(call, connection)

    def _death_of(self, call: "_Call", connection: Connection) -> WorkerError:
        call.busy[connection] = 0
        self._readable.unregister(connection)
        process = self._processes[connection]
        process.join()
        return WorkerError(
            f"a worker process ended with status {process.exitcode}; "
            "if memory ran out, use fewer workers"
        )


class _Call:
    """The jobs of one call: waiting, ``busy`` in a worker, or among the ``answers`` by position."""

    def __init__(
        self,
        waiting: deque[Sequence[Job]],
        fill: Fill | None,
        busy: dict[Connection, int],
        buffer_count: int,
    ) -> None:
        self.busy = busy
        self.answers: dict[int, Answer] = {}
        self._waiting = waiting
        self._fill = fill
        self._free = list(range(buffer_count))
        self._started = time.perf_counter()
        self._answered = 0

    def send(self) -> None:
        """Give groups to the least busy workers, as long as these and the buffers last."""
        depth = self._depth()
        while self._waiting:
            connection = min(self.busy, key=self.busy.__getitem__)
            if self.busy[connection] >= depth or not self._has_buffers():
                return
            connection.send(self._with_buffers(self._waiting.popleft()))
            self.busy[connection] += 1

    def take(self, connection: Connection, group: Sequence[Answer]) -> None:
        self.busy[connection] -= 1
        self._answered += 1
        self.answers.update((answer.position, answer) for answer in group)

    def release(self, answer: Answer) -> None:
        if self._fill is not None:
            # The last buffer read is the next one written: it is still in the cache.
            self._free.append(answer.buffer)

    def _depth(self) -> int:
        """Return a worker's limit of groups: few if they are long, as none can be taken over."""
        elapsed = time.perf_counter() - self._started
        is_short = elapsed * len(self.busy) < _SHORT_GROUP_S * self._answered
        return _SHORT_GROUPS_PER_WORKER if is_short else GROUPS_PER_WORKER

    def _has_buffers(self) -> bool:
        return self._fill is None or len(self._free) >= len(self._waiting[0])

    def _with_buffers(self, group: Sequence[Job]) -> Sequence[Job]:
        if self._fill is None:
            return group
        group = [job._replace(buffer=self._free.pop()) for job in group]
        for job in group:
            self._fill(job)
        return group
