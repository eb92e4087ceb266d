"""Show what new layers do to a model that gets them one by one, by how they start.

Two models are trained once with each ``growth.start``: ``digits``, the ViT of preset
``digits-growing``, and ``voice``, the network of ``speech-espeak-one`` in four stages on a third of
its sentences. Held-out loss is measured after every round (of digits in nats, of a voice as L1 of
its mel frames), and once more behind the growth that the next round begins with, before anything is
trained. ``zero`` must change no loss by 1e-6, or the benchmark fails.

    python -m benchmarks.growth_start --out docs/results

Figures (``--json`` prints them as one object), for each model and start:

    MODEL_START_grown_N_before  Loss after the last round of N - 1 layers.
    MODEL_START_grown_N_after   Loss of the same model with its Nth layer, not trained yet.
    MODEL_START_rounds_to_recover_N
                                Rounds after that growth until the loss is at or below what it was
                                before; 0 where growth raised nothing, absent where it never is.
    MODEL_START_final           Loss after the last round.

``--quick`` trains for eight rounds, a voice with a few sentences. Needs the extra speech-demo.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.tables.speech import AS_PUBLISHED
from edge_client.descent.compute import prepare_compute
from models.networks.flat_parameters import load_parameters
from models.networks.grown_layers import grow
from models.networks.registry import build_network
from models.plan.plan import Plan, released_schema
from models.plan.stages import next_stage, stage_figures
from models.settings.model import schema_of
from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from server.config.plans import make_plan
from simulation.config.overrides import parse_override
from simulation.config.simulation import SimulationConfig, config_from, read_tables, with_settings
from simulation.population.dealing import build_population
from simulation.population.population import Population
from simulation.rounds.federation import Federation
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf

NAME = "growth-start"
STARTS = ("zero", "random")
LARGEST_CHANGE = 1e-6
BATCH_SIZE = 64

_VOICE = (
    *AS_PUBLISHED,
    "model.layer_count=4",
    "training.decay={last_round=24, final_share=0.05}",
    "rounds.cap=24",
    "rounds.quorum=1",
    "growth={target_layer_count=4, stage_count=4, round_count=24}",
)
_SHORT = ("rounds.cap=8", "growth.round_count=8")


class Case(NamedTuple):
    """Say what is trained.

    Attributes:
        preset: A simulation's.
        settings: Settings that differ from it.
        quick: Further settings with ``--quick``.
        loss: Name of its loss.
    """

    preset: str
    settings: tuple[str, ...]
    quick: tuple[str, ...]
    loss: str


def _sentences(count: int) -> str:
    dealt = f'dataset="espeak-one", partition="ratio", ratio=[1, 1], clips_per_speaker={count}'
    return f"data={{{dealt}}}"


CASES = {
    "digits": Case("digits-growing", (), _SHORT, "cross-entropy, nats"),
    "voice": Case(
        "speech-espeak-one",
        (*_VOICE, _sentences(133)),
        (_sentences(12), "training.decay={last_round=8, final_share=0.05}", *_SHORT),
        "mel L1",
    ),
}


class Point(NamedTuple):
    """Hold what a model makes of the held-out examples.

    Attributes:
        round_number: Rounds it has been trained for.
        layer_count: Its layers.
        loss: Held-out loss.
    """

    round_number: int
    layer_count: int
    loss: float


Curves = Mapping[str, Mapping[str, Sequence[Point]]]
"""Losses by model and start."""


def measure(case: Case, start: str, *, quick: bool) -> list[Point]:
    """Train with one start and return the losses; a growth is a second point of its round."""
    config = _configured(case, start, quick=quick)
    population = build_population(config, None)
    plan = make_plan(config, "00" * 16, cohort_size=len(population.clients))
    with TemporaryDirectory() as folder:
        kept = StateShelf(Path(folder))
        pool = WorkerPool(plan, population.clients, worker_count=1, optimisers=kept)
        with pool:
            federation = Federation(config, plan, list(population.clients), pool)
            return list(_points(federation, population, config.rounds.cap))


def _points(federation: Federation, population: Population, round_count: int) -> Iterator[Point]:
    for number in range(1, round_count + 1):
        grown = next_stage(federation.plan, number)
        if grown is not None:
            parameters = grow(federation.parameters, federation.plan, grown, released_schema)
            yield _point(number - 1, grown, parameters, population)
        federation.run_round()
        yield _point(number, federation.plan, federation.parameters, population)


def _point(round_number: int, plan: Plan, parameters: Tensor, population: Population) -> Point:
    network = build_network(plan.model)
    load_parameters(network, schema_of(plan.model), parameters)
    examples = [*population.own_test.values(), *population.held_out.get("test", {}).values()]
    counts: Counts = task_named(plan.task).evaluate(network, examples, batch_size=BATCH_SIZE)
    return Point(round_number, stage_figures(plan)["layer_count"], counts.mean_log_loss)


def figures_of(start: str, points: Sequence[Point]) -> dict[str, float]:
    """Return the figures of one start.

    Raises:
        SystemExit: If the model had to predict what it did before, and does not.
    """
    figures: dict[str, float] = {}
    for place, (before, after) in enumerate(pairwise(points), start=1):
        if after.round_number > before.round_number:
            continue
        change = after.loss - before.loss
        if start == "zero" and not abs(change) < LARGEST_CHANGE:
            raise SystemExit(f"a zero start must change no loss by {LARGEST_CHANGE}, got {change}")
        figures[f"{start}_grown_{after.layer_count}_before"] = before.loss
        figures[f"{start}_grown_{after.layer_count}_after"] = after.loss
        recovered = next((point for point in points[place:] if point.loss <= before.loss), None)
        if recovered is not None:
            rounds = recovered.round_number - before.round_number
            figures[f"{start}_rounds_to_recover_{after.layer_count}"] = rounds
    return {**figures, f"{start}_final": points[-1].loss}


def main() -> None:
    """Measure every model with both starts, print the figures, and write them where asked."""
    parser = benchmark_parser(__doc__, quick="eight rounds of each")
    parser.add_argument("--out", type=Path, help=f"folder to write {NAME}.json and .png to")
    arguments = parser.parse_args()
    prepare_compute("cpu", threads=1)
    curves = {
        name: {start: measure(case, start, quick=arguments.quick) for start in STARTS}
        for name, case in CASES.items()
    }
    figures = {
        f"{name}_{figure}": value
        for name, starts in curves.items()
        for start, points in starts.items()
        for figure, value in figures_of(start, points).items()
    }
    if arguments.out is not None:
        _write(curves, figures, arguments.out)
    show_figures(figures, "Growth", as_json=arguments.json)


def _configured(case: Case, start: str, *, quick: bool) -> SimulationConfig:
    settings = (*case.settings, *(case.quick if quick else ()), f"growth.start={start}")
    tables = with_settings(read_tables(case.preset), [parse_override(s) for s in settings])
    return config_from(tables, NAME)


def _write(curves: Curves, figures: Mapping[str, float], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    losses = {
        name: {start: [point._asdict() for point in points] for start, points in starts.items()}
        for name, starts in curves.items()
    }
    document = {
        "command": "python -m benchmarks.growth_start --out docs/results",
        "figures": figures,
        "losses": losses,
    }
    (out / f"{NAME}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    canvas = FigureCanvasAgg(Figure(figsize=(10.0, 4.2), layout="constrained"))
    for place, (name, starts) in enumerate(curves.items(), start=1):
        axes = canvas.figure.add_subplot(1, len(curves), place)
        for start, points in starts.items():
            rounds = [point.round_number for point in points]
            axes.plot(rounds, [point.loss for point in points], marker=".", label=start)
        axes.set_yscale("log")
        axes.set_xlabel("rounds trained for; growth is a vertical step")
        axes.set_ylabel(f"held-out {CASES[name].loss}")
        axes.set_title(name)
        axes.legend(title="growth.start")
    canvas.figure.savefig(out / f"{NAME}.png", dpi=130, format="png")


if __name__ == "__main__":
    main()
