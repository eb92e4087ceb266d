"""Run ``sotto-simulate``: run, compare, tune, audit and draw federations on one machine."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import Flag, command_line, read_arguments
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.toml_schema import Schema, schema_command
from privacy.foundation.whole_number_flags import seed_list
from simulation.auditing.cli import audit
from simulation.commands.flags import Runs
from simulation.commands.partition import partition
from simulation.listening.cli import listen
from simulation.starting.cli import (
    START_EXAMPLES,
    VOICE_START_EXAMPLES,
    start,
    voice_start,
)
from simulation.tuning.cli import TUNE_EXAMPLES, tune
from simulation.understanding.cli import attention, clients, embeddings, novel

_SWEEP_EXAMPLES = """\
examples:
  attention strength, three seeds:
    sotto-simulate sweep keyboard-sms --set aggregation.attention_strength=0,0.5,1 --seeds 1,2,3
  rounds until a perplexity of 250, by client fraction C, local epochs E and batch size B:
    sotto-simulate sweep fedatt-ptb --until valid_perplexity=250 \\
      --set rounds.participation_rate=0.1,0.3,0.5,0.7,0.9 \\
      --set training.local_epochs=1,5 --set training.batch_size=10,20
  the runs side by side on a Ray cluster, each on four processors of one node:
    sotto-simulate sweep fedatt-ptb --seeds 1,2,3 --engine ray --address auto --workers 4
"""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Presets to show.

    Attributes:
        name: Preset to print as TOML.
    """

    name: Annotated[str | None, Flag(positional=True)] = None


class Run(Runs, frozen=True, kw_only=True):
    """One run.

    Attributes:
        seed: Seed of the run (default: the preset's).
        out: Folder of the run (default: runs/NAME-seed-SEED).
        tensorboard: Write TensorBoard events too.
    """

    seed: int | None = None
    out: Path | None = None
    tensorboard: bool = False


class Sweep(Runs, frozen=True, kw_only=True):
    """Runs over lists of settings and seeds.

    Attributes:
        seeds: Seeds, with commas between them.
        out: Folder of the sweep (default: runs/NAME-sweep).
        figure: Final figure to report (default: accuracy of images and characters, mel_l1 of
            voices, spectral_distance of vocoders, otherwise test_perplexity).
    """

    seeds: Annotated[tuple[int, ...], Flag(parse=seed_list)] = (1,)
    out: Path | None = None
    figure: str | None = None


class Paged(msgspec.Struct, frozen=True, kw_only=True):
    """Runs to report on.

    Attributes:
        runs: Folder of a run, over or not.
        html: File to write.
    """

    runs: Annotated[list[Path], Flag("RUN", positional=True)]
    html: Annotated[Path, Flag("FILE")] = Path("report.html")


class Plotted(msgspec.Struct, frozen=True, kw_only=True):
    """Runs to draw.

    Attributes:
        runs: Folder of a run.
        figure: Figure to draw.
        png: File to write.
    """

    runs: Annotated[list[Path], Flag("RUN", positional=True)]
    figure: str = "valid_perplexity"
    png: Path = Path("plot.png")


@command("sotto-simulate")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = command_line(
        "sotto-simulate",
        "Run whole federations on one machine, and compare, tune, audit and draw them.",
        (
            *(_presets, _run, _sweep, tune, audit, partition, _plot, _report),
            *(start, voice_start, attention, embeddings, clients, listen, novel),
            schema_command("a file to simulate", _file_schema),
        ),
        epilogs={
            "sweep": _SWEEP_EXAMPLES,
            "tune": TUNE_EXAMPLES,
            "start": START_EXAMPLES,
            "voice-start": VOICE_START_EXAMPLES,
        },
    )
    arguments = read_arguments(parser, argv)
    try:
        check_installation()
        return int(arguments.handler(arguments.settings))
    except ModuleNotFoundError as error:
        print(
            f"sotto-simulate: {error.name} is missing; install sotto[simulation]", file=sys.stderr
        )
        return 1
    # Torch is imported below this point; its errors and ours are RuntimeError and ValueError.
    except (ValueError, RuntimeError, OSError, InstallationError) as error:
        return failed("sotto-simulate", error)
    except KeyboardInterrupt:
        print("sotto-simulate: stopped; the same command goes on from here", file=sys.stderr)
        return 1


def _presets(asked: Shown) -> int:
    """List the presets, or print one."""
    from simulation.config.simulation import preset_names, preset_text

    if asked.name:
        print(preset_text(asked.name), end="")
    else:
        width = max(map(len, preset_names()))
        for name in preset_names():
            print(f"{name:{width}} {preset_text(name).splitlines()[0].removeprefix('# ')}")
    return 0


def _run(asked: Run) -> int:
    """Run a federation, or go on with one that stopped."""
    from simulation.commands.runs import run_one
    from simulation.figures.metrics import in_words

    final = run_one(asked.request(), out=asked.out)
    if asked.json:
        print(msgspec.json.encode(final).decode())
    else:
        for name, value in final.items():
            print(f"{name:20} {in_words(value)}")
    return 0


def _sweep(asked: Sweep) -> int:
    """Run over lists of settings and seeds."""
    from simulation.commands.runs import sweep
    from simulation.runs.sweep import markdown

    request = asked.request()
    figure = asked.figure or request.judged_by()
    rows = sweep(request, seeds=asked.seeds, out=asked.out, figure=figure)
    if asked.json:
        print(msgspec.json.encode(rows).decode())
    else:
        print(markdown(rows, request.until.name if request.until else figure), end="")
    return 0


def _plot(asked: Plotted) -> int:
    """Draw a figure of one or more runs by round."""
    from simulation.commands.runs import plot

    plot(asked.runs, asked.png, figure=asked.figure)
    print(asked.png)
    return 0


def _report(asked: Paged) -> int:
    """Write one page of one or more runs, side by side.

    Settings that differ, figures with their spread over seeds, every figure by round, and privacy
    promised and spent. It is a file that loads nothing and has no script. Runs must be of one task
    and one data set.
    """
    from simulation.commands.reported_runs import read_runs
    from simulation.commands.runs_page import runs_page

    page = runs_page(read_runs(asked.runs))
    write_atomically(asked.html.absolute(), page.encode(), mode=READABLE)
    print(asked.html)
    return 0


def _file_schema() -> Schema:
    from simulation.config.file_schema import file_schema

    return file_schema()


if __name__ == "__main__":
    sys.exit(main())
