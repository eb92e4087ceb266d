"""Measure what compressing updates saves, what it costs in perplexity, and how fast it is.

Figures (``--json`` prints them as one object):

    int8_bytes_fraction      Bytes that clients sent as int8 in blocks of 1,024 with zstd over those
                             of float32, over a whole run; ``four_bit_bytes_fraction`` as int4 in
                             blocks of 256 with error feedback, without zstd.
    int8_perplexity_loss_percent, four_bit_perplexity_loss_percent
                             Test perplexity above that of the run without compression, in percent
                             of it, mean over the seeds; negative is a gain.
                             ``perplexity_loss_percent`` is the larger of the two.
    downlink_bytes_fraction  Bytes that clients received, releases as what changed in steps of
                             2^-12, over those of whole float32 ones;
                             ``downlink_perplexity_loss_percent`` what that costs. A client that
                             held none of the last four releases counts with the whole one.
                             ``exact_downlink_...`` the same without a step: nothing is rounded.
    encode_gb_s, decode_gb_s Bytes of float32 written and read a second (10^9), the slower of both
                             forms: rounding, packing and zstd together, one thread. Values are
                             normal draws, on which zstd has most to do and least to gain.
    SETTING_encode_gb_s, ... Each form by itself, and one more: ``top``, int8 of the largest tenth.
    move_ms                  Milliseconds for each million parameters in which a coordinator writes
                             what changed since one release it offers, in steps of 2^-12.

Speeds are processor time and the best of several turns, so other programs' turns do not count. Runs
are simulations of ``--preset`` with its own seeds; the bytes are those that would be sealed.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.parts.figures import benchmark_parser, show_figures
from models.compression.release_delta import encode_delta
from models.compression.update_format import CompressedFormat
from models.settings.compression import CompressionSettings
from models.vector.schema import Schema, TensorSpec
from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.figures.metrics import Figures
from simulation.population.dealing import build_population
from simulation.runs.runner import RunOptions, run_simulation

INT8 = CompressionSettings(uplink="int8", block_size=1024, entropy="zstd")
FOUR_BIT = CompressionSettings(uplink="int4", error_feedback=True)
FORMS = {"int8": INT8, "four_bit": FOUR_BIT}
TIMED = {
    **FORMS,
    "top": CompressionSettings(uplink="int8", error_feedback=True, keep="top", keep_fraction=0.1),
}
STEP = 2.0**-12
MOVES = CompressionSettings(uplink="none", downlink="delta", downlink_step=STEP)
EXACT_MOVES = CompressionSettings(uplink="none", downlink="delta")
MEASURED = (
    ("int8", INT8, "bytes_up"),
    ("four_bit", FOUR_BIT, "bytes_up"),
    ("downlink", MOVES, "bytes_down"),
    ("exact_downlink", EXACT_MOVES, "bytes_down"),
)
TURNS = 5
WIDTH = 400


def speeds(settings: CompressionSettings, element_count: int) -> tuple[float, float]:
    """Return the GB of float32 that are encoded and decoded in a second of processor time."""
    schema = _matrix(element_count)
    form = CompressedFormat(schema, settings, told_count=0)
    update = np.random.default_rng(0).standard_normal(element_count).astype(np.float32)
    payload = form.encode(update, seed=0)
    encode_s = _best(lambda: form.encode(update, seed=1))
    decode_s = _best(lambda: form.decode(payload))
    return update.nbytes / 1e9 / encode_s, update.nbytes / 1e9 / decode_s


def move_ms(element_count: int) -> float:
    """Return milliseconds of processor time in which a million parameters' move is written."""
    schema = _matrix(element_count)
    draws = np.random.default_rng(0)
    held, moved = (draws.normal(0.0, scale, element_count) for scale in (0.05, 0.005))
    before, after = (
        (np.round(values / STEP) * STEP).astype(np.float32) for values in (held, held + moved)
    )
    return 1e3 * _best(lambda: encode_delta(schema, before, after, STEP)) / (element_count / 1e6)


def _matrix(element_count: int) -> Schema:
    shape = (element_count // WIDTH, WIDTH)
    return Schema((TensorSpec(name="update", shape=shape, layer="update"),))


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(TURNS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def run(
    preset: str,
    data: Path | None,
    seed: int,
    settings: CompressionSettings | None,
    rounds: int | None,
) -> Figures:
    """Return the final figures of one simulation."""
    changes = [f"seed={seed}"]
    if rounds is not None:
        changes.append(f"rounds.cap={rounds}")
    tables = with_settings(read_tables(preset), [parse_override(change) for change in changes])
    if settings is not None:
        told = {name: value for name, value in msgspec.to_builtins(settings).items() if value}
        tables = {**tables, "compression": told}
    config = config_from(tables, preset)
    population = build_population(config, data)
    with tempfile.TemporaryDirectory(prefix="sotto-compression-") as folder:
        return run_simulation(config, tables, population, Path(folder) / "run", RunOptions())


def compared(
    preset: str, data: Path | None, seeds: list[int], rounds: int | None
) -> dict[str, float]:
    """Run every form with every seed and return what it saved and what it cost."""
    found: dict[str, list[float]] = {}
    for seed in seeds:
        plain = run(preset, data, seed, None, rounds)
        for name, form, counted in MEASURED:
            compressed = run(preset, data, seed, form, rounds)
            moved = _number(compressed, counted) / _number(plain, counted)
            perplexities = [_number(one, "test_perplexity") for one in (compressed, plain)]
            loss = 100 * (perplexities[0] / perplexities[1] - 1)
            found.setdefault(f"{name}_bytes_fraction", []).append(moved)
            found.setdefault(f"{name}_perplexity_loss_percent", []).append(loss)
    return {name: statistics.fmean(values) for name, values in found.items()}


def _number(figures: Figures, name: str) -> float:
    value = figures[name]
    if not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def measure(
    preset: str, data: Path | None, seeds: list[int], rounds: int | None, element_count: int
) -> dict[str, float]:
    """Return all figures."""
    figures = compared(preset, data, seeds, rounds)
    losses = [figures[f"{form}_perplexity_loss_percent"] for form in FORMS]
    figures["perplexity_loss_percent"] = max(losses)
    timed = {form: speeds(settings, element_count) for form, settings in TIMED.items()}
    for place, name in enumerate(("encode_gb_s", "decode_gb_s")):
        figures[name] = min(timed[form][place] for form in FORMS)
        figures |= {f"{form}_{name}": both[place] for form, both in timed.items()}
    figures["move_ms"] = move_ms(element_count)
    return figures


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="one seed, 5 rounds, 16 MB")
    parser.add_argument("--preset", default="keyboard-tiny", help="preset of the simulations")
    parser.add_argument("--data", type=Path, help="folder of the preset's data, if it has any")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 1 on (default: 3)")
    parser.add_argument("--rounds", type=int, help="rounds of a run (default: the preset's)")
    arguments = parser.parse_args()
    seeds = list(range(1, 2 if arguments.quick else arguments.seeds + 1))
    rounds = arguments.rounds or (5 if arguments.quick else None)
    elements = 4_000_000 if arguments.quick else 16_000_000
    figures = measure(arguments.preset, arguments.data, seeds, rounds, elements)
    show_figures(figures, f"Compressed updates, {arguments.preset}", as_json=arguments.json)


if __name__ == "__main__":
    main()
