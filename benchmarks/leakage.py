"""Show what the paper's noise hides of a person's words, beside modes with a guarantee.

For each noise mode one round from the initial parameters says how well the words of one client can
be told from its upload and from the released model (AUC; 0.5 is a blind guess), and a short run of
the preset ``keyboard-tiny`` with all six clients in every round says what the noise costs.

    python -m benchmarks.leakage --out docs/results

Runs lie below ``--runs`` and are not run again. ``--quick`` runs two modes for one round.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.tables.maker import flat
from models.networks.flat_parameters import initial_parameters
from models.settings.model import schema_of
from privacy.auditing.noise_estimate import gaussian_epsilon
from privacy.clipping.sensitivity import attentive_sensitivity
from server.config.plans import make_plan
from simulation.auditing.mechanism import claimed_multiplier
from simulation.auditing.uploads import round_leakage
from simulation.config.overrides import Override
from simulation.config.simulation import SimulationConfig, config_from, read_tables, with_settings
from simulation.figures.progress import ProgressReport
from simulation.population.text import build_text_population
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.processors import processor_count

NAME = "leakage"
PRESET = "keyboard-tiny"
BETAS = (0.0, 0.001, 0.005, 0.01, 0.05)
ROUNDS = 5
COHORT = 6
CROWD = 10_000
CLIP, STRENGTH, DELTA = 5.0, 0.5, 1e-5
LOOSE_CLIP = 20.0

Privacy = dict[str, Any]  # TOML values.


class Mode(NamedTuple):
    """Name a noise mode of the table.

    Attributes:
        name: Row of the table.
        privacy: The table ``[privacy]``.
        has_release: Whether what a reader sees of six clients stands for the mode.
    """

    name: str
    privacy: Privacy
    has_release: bool = True


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one row: AUCs, ε of one round at δ = 1e-5 (None without a guarantee) and perplexity."""

    mode: str
    round_epsilon: float | None
    upload_auc: float
    release_auc: float | None
    frequency_auc: float
    test_perplexity: float | None


def modes() -> list[Mode]:
    """Return the rows: the paper's magnitudes, then calibrated noise of multiplier 1."""
    paper = [
        Mode(
            f"paper, β = {beta:g}",
            {"mode": "paper", "randomisation_magnitude": beta, "clipping_norm": LOOSE_CLIP},
        )
        for beta in BETAS
    ]
    calibrated = {
        "clipping_norm": CLIP,
        "noise_multiplier": 1.0,
        "delta": DELTA,
        "epsilon_budget": 1e6,
    }
    layers = len(schema_of(_configured({"mode": "none", "clipping_norm": CLIP}, 1).model).tensors)
    crowd_std = attentive_sensitivity(
        slot_count=CROWD,
        attention_strength=STRENGTH,
        clipping_norms=[CLIP],
        layer_count=layers,
    )
    as_in_a_crowd = {
        "mode": "paper-server",
        "randomisation_magnitude": crowd_std,
        "clipping_norm": CLIP,
    }
    return [
        *paper,
        Mode(
            f"central, z = 1, cohort of {COHORT}",
            {"mode": "central", "adjacency": "zero-out", **calibrated},
        ),
        Mode(
            f"central, z = 1, noise as in a cohort of {CROWD:,}", as_in_a_crowd, has_release=False
        ),
        Mode("local, z = 1", {"mode": "local", **calibrated}),
        Mode(
            f"masked, z = 1, cohort of {COHORT}",
            {
                "mode": "masked",
                "adjacency": "zero-out",
                "coordinator_epsilon_budget": 1e6,
                "honest_share": 1.0,
                **calibrated,
            },
        ),
    ]


def measure(mode: Mode, rounds: int, runs: Path, workers: int) -> Row:
    """Measure one row."""
    config = _configured(mode.privacy, rounds)
    population = build_text_population(config, None)
    plan = make_plan(config, "0" * 32, cohort_size=COHORT, vocabulary=population.vocabulary)
    parameters = initial_parameters(config.model, config.seed)
    leakage = round_leakage(config, plan, population, parameters)
    tables = with_settings(read_tables(PRESET), _settings(mode.privacy, rounds))
    folder = runs / "".join(letter if letter.isalnum() else "-" for letter in mode.name)
    with ProgressReport(mode.name, first_round=1, last_round=rounds) as report:
        options = RunOptions(worker_count=workers, reporter=report)
        final = run_simulation(config, tables, population, folder, options)
    perplexity = final["test_perplexity"]
    claimed = 1.0 if not mode.has_release else claimed_multiplier(config.privacy)
    return Row(
        mode=mode.name,
        round_epsilon=None if claimed is None else gaussian_epsilon(claimed, DELTA),
        upload_auc=leakage.upload.by_both,
        release_auc=leakage.release.by_both if mode.has_release else None,
        frequency_auc=leakage.upload.by_frequency,
        test_perplexity=perplexity if isinstance(perplexity, float) else None,
    )


def markdown(rows: Sequence[Row], command: str, rounds: int) -> str:
    """Return the table and what it says."""
    lines = [
        "# What one round gives away of a person's words",
        "",
        f"Made by `{command}`: preset `{PRESET}`, all {COHORT} clients in every round, one seed, "
        f"perplexity after {rounds} rounds. AUC is the chance that a word the person typed scores "
        f"above one they did not: 0.5 is a blind guess, and public word frequency alone gives "
        f"{rows[0].frequency_auc:.2f}. The upload is what the operator opens, the release what a "
        "reader of the model sees change; epsilon is that of one round at delta 1e-5, without "
        f"sampling. Updates are clipped to {LOOSE_CLIP:g} in the paper's rows, where no update "
        f"reaches it, and to {CLIP:g} below. Noise as in a cohort of {CROWD:,} is added to the "
        f"mean of the same {COHORT} clients: an extrapolation of its perplexity, and no picture "
        "of how one person disappears among that many. Calibrated noise has no seed: its rows "
        "vary.",
        "",
        "| noise | epsilon of a round | AUC, one upload | AUC, release | perplexity |",
        "| --- " * 5 + "|",
    ]
    for row in rows:
        epsilon = "no bound" if row.round_epsilon is None else f"{row.round_epsilon:.1f}"
        release = "" if row.release_auc is None else f"{row.release_auc:.3f}"
        lines.append(
            f"| {row.mode} | {epsilon} | {row.upload_auc:.3f} | {release} "
            f"| {_perplexity(row.test_perplexity)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every row and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two modes, one round")
    parser.add_argument("--json", action="store_true", help="print one object of figures")
    parser.add_argument("--out", type=Path, help="folder to write leakage.md, .json and .png to")
    parser.add_argument("--runs", type=Path, help="folder of the runs (default: a temporary one)")
    parser.add_argument("--workers", type=int, default=processor_count())
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else ROUNDS
    chosen = [modes()[index] for index in (4, 5)] if arguments.quick else modes()
    with tempfile.TemporaryDirectory() as temporary:
        runs: Path = arguments.runs or Path(temporary)
        rows = [measure(mode, rounds, runs, arguments.workers) for mode in chosen]
    command = "python -m benchmarks.leakage --out docs/results"
    if arguments.out is not None:
        _write(rows, arguments.out, command, rounds)
    if arguments.json:
        figures = {row.mode: _figures(row) for row in rows}
        print(json.dumps(flat({NAME: figures})))
    else:
        print(markdown(rows, command, rounds), end="")


def _figures(row: Row) -> dict[str, float | None]:
    return {name: value for name, value in msgspec.structs.asdict(row).items() if name != "mode"}


def _settings(privacy: Privacy, rounds: int) -> list[Override]:
    return [
        Override(("privacy",), (privacy,)),
        Override(("aggregation", "attention_strength"), (STRENGTH,)),
        Override(("rounds", "cap"), (rounds,)),
        Override(("rounds", "cohort_size"), (COHORT,)),
        Override(("rounds", "close_early"), (False,)),
        Override(("evaluation", "every_rounds"), (rounds,)),
        Override(("evaluation", "keep_best"), (False,)),
    ]


def _configured(privacy: Privacy, rounds: int) -> SimulationConfig:
    return config_from(with_settings(read_tables(PRESET), _settings(privacy, rounds)), PRESET)


def _perplexity(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "beyond float64"
    return f"{value:.1f}" if value < 1e5 else f"{value:.1e}"


def _write(rows: Sequence[Row], out: Path, command: str, rounds: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    document = {
        "table": NAME,
        "command": command,
        "rounds": rounds,
        "rows": msgspec.to_builtins(rows),
    }
    (out / f"{NAME}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    (out / f"{NAME}.md").write_text(
        markdown(rows, command, rounds) + f"\n![AUC and perplexity]({NAME}.png)\n"
    )
    canvas = FigureCanvasAgg(Figure(figsize=(8.0, 4.6), layout="constrained"))
    axes = canvas.figure.add_subplot()
    names = [row.mode for row in rows]
    places = range(len(rows))
    axes.barh([place - 0.2 for place in places], [row.upload_auc for row in rows], 0.4,
              label="one upload")  # fmt: skip
    axes.barh([place + 0.2 for place in places], [row.release_auc or 0 for row in rows], 0.4,
              label="release")  # fmt: skip
    for place, row in enumerate(rows):
        axes.text(1.01, place, f"perplexity {_perplexity(row.test_perplexity)}", va="center")
    axes.axvline(rows[0].frequency_auc, linestyle="--", color="gray", label="public frequency")
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set_xlim(0.4, 1.0)
    axes.set_xlabel("AUC of one person's words")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
    canvas.figure.savefig(out / f"{NAME}.png", dpi=130, format="png")


if __name__ == "__main__":
    main()
