"""Measure what a robust rule costs a round: each in a process of its own, for its peak memory."""

import multiprocessing
import resource
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from models.vector.schema import Schema, TensorSpec
from privacy.noise.settings import NoNoise
from server.aggregation.robust_settings import (
    GeometricMedianSettings,
    KrumSettings,
    MedianSettings,
    TrimmedAttentiveSettings,
    TrimmedMeanSettings,
)
from server.aggregation.settings import AggregationSettings, AttentiveSettings
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution

ELEMENTS = 1_000_000
POOL_SIZE = 10
RULES: dict[str, AggregationSettings] = {
    "attentive": AttentiveSettings(),
    "median": MedianSettings(),
    "trimmed_mean": TrimmedMeanSettings(),
    "krum": KrumSettings(attackers=20),
    "multi_krum": KrumSettings(attackers=20, kept=70),
    "geometric_median": GeometricMedianSettings(),
    "trimmed_attentive": TrimmedAttentiveSettings(),
    "by_direction": TrimmedAttentiveSettings(trim_by="direction", trim_share=0.4),
    "by_history": TrimmedAttentiveSettings(trim_by="history", trim_share=0.4, sybil_cosine=0.95),
}


def robust_figures(client_count: int) -> dict[str, float]:
    """Return milliseconds of processor time and peak memory in MiB of a round under every rule.

    Memory is beyond the parameters and the updates at hand. What rests sealed on disk meanwhile is
    in the kernel's cache or on the disk, not in it.
    """
    figures = {}
    for name, settings in RULES.items():
        figures[f"{name}_ms"], figures[f"{name}_mib"] = _in_a_process(settings, client_count)
    return figures


def _in_a_process(settings: AggregationSettings, client_count: int) -> tuple[float, float]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(theirs, settings, client_count))
    process.start()
    theirs.close()
    milliseconds, mebibytes = ours.recv()
    process.join()
    return milliseconds, mebibytes


def _measure(connection: Connection, settings: AggregationSettings, client_count: int) -> None:
    torch.set_num_threads(1)
    schema = Schema((TensorSpec(name="weight", shape=(1000, ELEMENTS // 1000), layer="weight"),))
    generator = torch.Generator().manual_seed(0)
    pool = [torch.randn(ELEMENTS, generator=generator) / 2000 for _ in range(POOL_SIZE)]
    parameters = torch.ones(ELEMENTS)
    # Once with a tiny model, so that no figure holds the loading of libraries.
    tiny = Schema((TensorSpec(name="weight", shape=(10,), layer="weight"),))
    _close(settings, [one[:10].clone() for one in pool], torch.zeros(10), tiny, client_count)
    before, started = _peak_mib(), time.process_time()
    _close(settings, pool, parameters, schema, client_count)
    spent = time.process_time() - started
    connection.send((1000 * spent, _peak_mib() - before))
    connection.close()


def _close(
    settings: AggregationSettings,
    pool: list[Tensor],
    parameters: Tensor,
    schema: Schema,
    client_count: int,
) -> None:
    def contributions() -> Iterator[Contribution]:
        for slot in range(client_count):
            yield Contribution(slot, pool[slot % POOL_SIZE], 1)

    close_round(
        parameters,
        contributions(),
        Closing(
            schema=schema,
            aggregation=settings,
            privacy=NoNoise(clipping_norm=1.0),
            slot_count=client_count,
            generator=torch.Generator(),
            earlier=-parameters if settings.look_back else None,
        ),
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
