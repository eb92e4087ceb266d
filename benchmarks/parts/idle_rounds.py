"""Rounds of a federation in which nobody trains, on either engine, and one that loses a node.

What workers import lies here: a node finds no class of a module that is run as a program.
"""

import os
import signal
import time
from typing import Any

import psutil
import torch

from benchmarks.parts.memory_watch import watch_of_this_process
from benchmarks.simulation import SMALL_HIDDEN, SMALL_VOCABULARY, WORKERS, Untrained, make_config
from edge_client.training.local_result import LocalResult
from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import Plan
from server.config.plans import make_plan
from simulation.rounds.federation import Federation
from simulation.workers.engine import Engine
from simulation.workers.jobs import TrainerFactory
from simulation.workers.pool import WorkerPool

NODE_CLIENTS, LOSS_ROUND, CLIENT_S = 40, 3, 0.05


class Lost(Untrained):
    """Take a moment for a client; on one node, die with it in the middle of a round."""

    def __init__(self, plan: Plan, *, victim: str) -> None:
        super().__init__(plan)
        self._victim = victim
        self._trained = 0

    def train(self, *args: Any, round_number: int, **kwargs: Any) -> LocalResult:
        """Train nothing, or nobody any more."""
        self._trained += round_number == LOSS_ROUND
        if self._trained == NODE_CLIENTS // 4 and self._is_victim():
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        time.sleep(CLIENT_S)
        return super().train(*args, round_number=round_number, **kwargs)

    def _is_victim(self) -> bool:
        import ray

        return bool(ray.get_runtime_context().get_node_id() == self._victim)


class Rounds:
    """Rounds of one federation: seconds of each, the last model, and memory."""

    def __init__(
        self, client_count: int, rounds: int, engine: Engine, trainer: TrainerFactory = Untrained
    ) -> None:
        """Run a round that warms the workers, and those that are measured."""
        config = make_config(
            client_count, vocabulary_size=SMALL_VOCABULARY, hidden_size=SMALL_HIDDEN
        )
        plan = make_plan(config, "00" * 16)
        text = {f"device-{number:04}": torch.arange(2, 22) for number in range(client_count)}
        watch = watch_of_this_process()
        self.seconds: list[float] = []
        with WorkerPool(plan, text, worker_count=WORKERS, trainer=trainer, engine=engine) as pool:
            federation = Federation(config, plan, list(text), pool)
            federation.run_round()
            watch.start()
            worked = _processor_seconds()
            for _ in range(rounds):
                started = time.perf_counter()
                federation.run_round()
                self.seconds.append(time.perf_counter() - started)
            watch.stop()
            self.processor_s = (_processor_seconds() - worked) / rounds
        self.rss_bytes = watch.peak_bytes
        self.digest = parameters_sha256(federation.parameters)


def _processor_seconds() -> float:
    """Return the processor time of this process and all that it started."""
    this = psutil.Process()
    times = [one.cpu_times() for one in [this, *this.children(recursive=True)]]
    return float(sum(time.user + time.system for time in times))
