"""Measure aggregation: attentive against a stacked cohort and memory bandwidth, and robust rules.

Figures (``--json`` prints them as one object):

    bandwidth_fraction   Bytes of updates aggregated per second over the machine's copy bandwidth
                         (bytes read plus bytes written per second). 1 would be reading each
                         update once and doing nothing else. Two reads of each, and a sum that is
                         read and written, make about a quarter; caches and prefetching add to it.
    versus_stacked       Time of stack-softmax-einsum over the time of the streaming round.
    extra_models         Peak memory of the streaming round in units of one model, beyond the old
                         parameters and the update in hand; ``..._small_cohort`` for a tenth of
                         the clients.
    median_ms, ..._mib   Processor milliseconds of a round under each rule with 100 clients of a
                         million parameters, and its peak memory in MiB; the cohort times a
                         chunk is 100 MiB. Attention streams, and stands there to compare.

Each time is processor time per thread, so that other programs' turns do not count, and the best of
several runs, taken in turns so that a busy moment hits all sides. Nothing here waits for a disk: on
an idle machine it is the time on the clock. All sides use the same number of threads, one unless
told otherwise: threads of one sum wait for each other on a busy machine, and their number changes
no bit. The updates lie in a pool of buffers that is larger than any cache and is read in turns, as
if each had just been opened; the stack gets memory of its own.
"""

import math
import resource
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.comparators.stacked_attention import stacked_attention
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.robust_rules import robust_figures
from models.vector.schema import Schema, TensorSpec
from privacy.noise.settings import NoNoise
from server.aggregation.settings import AttentiveSettings
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution

POOL_SIZE = 10
CLIPPING_NORM = 1.0
ATTENTION_STRENGTH = 0.5


def model_schema() -> Schema:
    """Return a keyboard model of 10 million parameters: tied GRU, 512 wide, 16,400 words."""
    hidden, words = 512, 16_425
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (words, hidden),
        "gru.weight_ih_l0": (3 * hidden, hidden),
        "gru.weight_hh_l0": (3 * hidden, hidden),
        "gru.bias_ih_l0": (3 * hidden,),
        "gru.bias_hh_l0": (3 * hidden,),
        "output.bias": (words,),
    }
    return Schema(
        tuple(
            TensorSpec(name=name, shape=shape, layer=name.split(".")[0])
            for name, shape in shapes.items()
        )
    )


def drawn_pool(schema: Schema) -> list[Tensor]:
    """Draw updates with a norm of about 0.6: within the clip, each a little different."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.empty(schema.element_count).normal_(
            std=2e-4 * (0.8 + index / 25), generator=generator
        )
        for index in range(POOL_SIZE)
    ]


def streamed(pool: list[Tensor], parameters: Tensor, schema: Schema, client_count: int) -> Tensor:
    """Close one round as the coordinator does and return the new parameters."""

    def contributions() -> Iterator[Contribution]:
        for slot in range(client_count):
            yield Contribution(slot, pool[slot % POOL_SIZE], 1)

    return close_round(
        parameters,
        contributions(),
        Closing(
            schema=schema,
            aggregation=AttentiveSettings(attention_strength=ATTENTION_STRENGTH),
            privacy=NoNoise(clipping_norm=CLIPPING_NORM),
            slot_count=client_count,
            generator=torch.Generator(),
        ),
    ).parameters


def stacked(pool: list[Tensor], parameters: Tensor, schema: Schema, client_count: int) -> Tensor:
    """Do the same by stacking the cohort."""
    aggregate = stacked_attention(
        [pool[slot % POOL_SIZE] for slot in range(client_count)],
        schema.slices.values(),
        attention_strength=ATTENTION_STRENGTH,
        clipping_norm=CLIPPING_NORM,
    )
    return aggregate.add_(parameters)


def copied(pool: list[Tensor], target: Tensor, client_count: int) -> Tensor:
    """Copy as many updates as the cohort has."""
    for slot in range(client_count):
        target.copy_(pool[slot % POOL_SIZE])
    return target


def warm_up() -> None:
    """Run every side once on a tiny model, so that no figure holds the loading of libraries."""
    schema = Schema((TensorSpec(name="weight", shape=(50, 100), layer="weight"),))
    pool, parameters = drawn_pool(schema), torch.zeros(schema.element_count)
    streamed(pool, parameters, schema, 2)
    stacked(pool, parameters, schema, 2)


def peak_bytes() -> int:
    """Return the largest memory the process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def best_seconds(sides: dict[str, tuple[int, Callable[[], Tensor]]]) -> dict[str, float]:
    """Return the best time of each side over its number of runs, the sides taken in turns."""
    best = dict.fromkeys(sides, math.inf)
    for turn in range(max(runs for runs, _ in sides.values())):
        for name, (runs, work) in sides.items():
            if turn < runs:
                start = time.process_time()
                work()
                spent = (time.process_time() - start) / torch.get_num_threads()
                best[name] = min(best[name], spent)
    return best


def measure(client_count: int, *, runs: int, stacked_runs: int) -> dict[str, float]:
    """Run all sides and return the figures."""
    # First, in processes of their own, as long as this one is small.
    robust = robust_figures(client_count)
    schema = model_schema()
    pool, parameters = drawn_pool(schema), torch.zeros(schema.element_count).fill_(0.5)
    few = max(client_count // 10, 1)
    warm_up()
    peaks = [peak_bytes()]
    for count in (few, client_count):
        streamed(pool, parameters, schema, count)
        peaks.append(peak_bytes())
    aggregate = streamed(pool, parameters, schema, client_count)
    torch.testing.assert_close(
        aggregate, stacked(pool, parameters, schema, client_count), rtol=1e-5, atol=1e-6
    )
    stacked_peak = peak_bytes()
    times = best_seconds(
        {
            "streaming": (runs, lambda: streamed(pool, parameters, schema, client_count)),
            "copy": (runs, lambda: copied(pool, aggregate, client_count)),
            "stacked": (stacked_runs, lambda: stacked(pool, parameters, schema, client_count)),
        }
    )
    update_bytes = client_count * schema.payload_bytes
    copy_rate = 2 * update_bytes / times["copy"]
    return {
        "clients": client_count,
        "elements": schema.element_count,
        "threads": torch.get_num_threads(),
        "streaming_s": times["streaming"],
        "stacked_s": times["stacked"],
        "versus_stacked": times["stacked"] / times["streaming"],
        "streaming_gb_per_s": update_bytes / times["streaming"] / 1e9,
        "copy_gb_per_s": copy_rate / 1e9,
        "bandwidth_fraction": update_bytes / times["streaming"] / copy_rate,
        "extra_models": (peaks[2] - peaks[0]) / schema.payload_bytes,
        "extra_models_small_cohort": (peaks[1] - peaks[0]) / schema.payload_bytes,
        "stacked_extra_models": (stacked_peak - peaks[0]) / schema.payload_bytes,
        **robust,
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer runs (under a minute)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every side")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    runs, stacked_runs = (6, 1) if arguments.quick else (12, 3)
    figures = measure(100, runs=runs, stacked_runs=stacked_runs)
    show_figures(figures, "Aggregation", as_json=arguments.json)


if __name__ == "__main__":
    main()
