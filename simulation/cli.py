"""Run ``sotto-simulate``: run, compare, tune, audit and draw federations on one machine."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from privacy.foundation.command_exit import command, failed
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.whole_number_flags import seed_list
from simulation.auditing.cli import add_audit, run_audit_command
from simulation.commands.data_argument import add_data
from simulation.commands.partition import add_partition, run_partition
from simulation.listening.cli import add_listen
from simulation.tuning.cli import add_tune, run_tune
from simulation.understanding.cli import add_attention, add_clients, add_embeddings, add_novel

if TYPE_CHECKING:
    from simulation.commands.runs import Request

DATA_VARIABLE = "SOTTO_DATA"

_SWEEP_EXAMPLES = """\
examples:
  attention strength, three seeds:
    sotto-simulate sweep keyboard-sms --set aggregation.attention_strength=0,0.5,1 --seeds 1,2,3
  rounds until a perplexity of 250, by client fraction C, local epochs E and batch size B:
    sotto-simulate sweep fedatt-ptb --until valid_perplexity=250 \\
      --set rounds.participation_rate=0.1,0.3,0.5,0.7,0.9 \\
      --set training.local_epochs=1,5 --set training.batch_size=10,20
"""


@command("sotto-simulate")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        check_installation()
        return int(arguments.command(arguments))
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sotto-simulate",
        description="Run whole federations on one machine, and compare, tune, audit and draw them.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    presets = commands.add_parser("presets", help="list the presets, or print one")
    presets.add_argument("name", nargs="?", help="preset to print as TOML")
    presets.set_defaults(command=_presets)
    _add_run(commands.add_parser("run", help="run a federation, or go on with one that stopped"))
    _add_sweep(
        commands.add_parser(
            "sweep",
            help="run over lists of settings and seeds",
            epilog=_SWEEP_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_tune(
        commands.add_parser("tune", help="find the noise, clipping and cohort for a target epsilon")
    )
    _add_audit(
        commands.add_parser(
            "audit", help="measure the true noise, what a model remembers, what an upload shows"
        )
    )
    _add_partition(commands.add_parser("partition", help="deal a data set, and show who got what"))
    _add_plot(commands.add_parser("plot", help="draw a figure of one or more runs by round"))
    data = _named_data()
    add_attention(
        commands.add_parser("attention", help="draw where clients' own attention looks in images"),
        data,
    )
    add_embeddings(
        commands.add_parser("embeddings", help="draw what a hypernetwork learnt of its clients")
    )
    add_clients(
        commands.add_parser("clients", help="draw how accuracy is spread over a run's clients")
    )
    add_listen(
        commands.add_parser(
            "listen", help="measure what a voice says, between a ceiling and two floors"
        ),
        data,
    )
    add_novel(
        commands.add_parser("novel", help="fit a finished model to clients it never saw"), data
    )
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    _add_common(run)
    _add_method(run)
    _add_speed(run)
    run.add_argument("--seed", type=int, help="seed of the run (default: the preset's)")
    run.add_argument("--out", type=Path, help="folder of the run (default: runs/NAME-seed-SEED)")
    run.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")
    run.set_defaults(command=_run)


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    _add_common(sweep)
    _add_method(sweep)
    _add_speed(sweep)
    sweep.add_argument(
        "--seeds",
        type=seed_list,
        default="1",
        help="seeds, with commas between them (default: %(default)s)",
    )
    sweep.add_argument("--out", type=Path, help="folder of the sweep (default: runs/NAME-sweep)")
    sweep.add_argument(
        "--figure",
        help="final figure to report (default: accuracy of images and characters, mel_l1 of "
        "voices, spectral_distance of vocoders, otherwise test_perplexity)",
    )
    sweep.set_defaults(command=_sweep)


def _add_tune(tune: argparse.ArgumentParser) -> None:
    _add_common(tune, with_until=False)
    add_tune(tune)
    tune.set_defaults(command=_tune)


def _add_audit(audit: argparse.ArgumentParser) -> None:
    _add_common(audit, with_until=False)
    add_audit(audit)
    audit.set_defaults(command=_audit)


def _add_method(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--method",
        help="personalisation method that takes the place of the preset's, as fedavg, fedper, "
        "fedtp or fedtp-knn (sets [personalisation])",
    )


def _add_speed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--together",
        type=int,
        default=1,
        metavar="N",
        help="clients that one process trains at once; for images (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where clients train (default: %(default)s)",
    )


def _add_partition(partition: argparse.ArgumentParser) -> None:
    _add_settled(partition)
    partition.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_partition(partition)
    partition.set_defaults(command=_partition)


def _add_settled(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="PRESET_OR_FILE", help="preset, or a file ending in .toml")
    add_data(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="PATH=VALUE",
        help="change a setting, as rounds.quorum=5; may be repeated; sweep takes lists",
    )


def _add_common(parser: argparse.ArgumentParser, *, with_until: bool = True) -> None:
    _add_settled(parser)
    parser.add_argument("--rounds", type=int, help="largest number of rounds (sets rounds.cap)")
    if with_until:
        parser.add_argument(
            "--until",
            metavar="FIGURE=VALUE",
            help="stop at the first round whose FIGURE reaches VALUE (rising for figures such as "
            "accuracy, falling otherwise); sweep then reports the number of rounds",
        )
    parser.add_argument(
        "--workers", type=int, help="processes that train (default: one a processor core)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_plot(plot: argparse.ArgumentParser) -> None:
    plot.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    plot.add_argument("--figure", default="valid_perplexity", help="figure (default: %(default)s)")
    plot.add_argument("--png", type=Path, default=Path("plot.png"), help="file to write")
    plot.set_defaults(command=_plot)


def _presets(arguments: argparse.Namespace) -> int:
    from simulation.config.simulation import preset_names, preset_text

    if arguments.name:
        print(preset_text(arguments.name), end="")
    else:
        width = max(map(len, preset_names()))
        for name in preset_names():
            print(f"{name:{width}} {preset_text(name).splitlines()[0].removeprefix('# ')}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from simulation.commands.runs import run_one

    final = run_one(_request(arguments), out=arguments.out)
    if arguments.json:
        print(msgspec.json.encode(final).decode())
    else:
        for name, value in final.items():
            print(f"{name:20} {value:.6g}" if isinstance(value, float) else f"{name:20} {value}")
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    from simulation.commands.runs import sweep
    from simulation.runs.sweep import markdown

    request = _request(arguments)
    figure = arguments.figure or request.judged_by()
    rows = sweep(request, seeds=arguments.seeds, out=arguments.out, figure=figure)
    if arguments.json:
        print(msgspec.json.encode(rows).decode())
    else:
        print(markdown(rows, request.until.name if request.until else figure), end="")
    return 0


def _tune(arguments: argparse.Namespace) -> int:
    return run_tune(arguments, _request(arguments))


def _partition(arguments: argparse.Namespace) -> int:
    return run_partition(arguments, _request(arguments))


def _audit(arguments: argparse.Namespace) -> int:
    return run_audit_command(arguments, _request(arguments))


def _plot(arguments: argparse.Namespace) -> int:
    from simulation.commands.runs import plot

    plot(arguments.runs, arguments.png, figure=arguments.figure)
    print(arguments.png)
    return 0


def _request(arguments: argparse.Namespace) -> "Request":
    """Put the options together."""
    from simulation.commands.runs import Request
    from simulation.config.overrides import Override, parse_override
    from simulation.figures.threshold import parse_threshold

    settings = [parse_override(text) for text in arguments.settings]
    if getattr(arguments, "rounds", None) is not None:
        settings.append(Override(("rounds", "cap"), (arguments.rounds,)))
    if getattr(arguments, "seed", None) is not None:
        settings.append(Override(("seed",), (arguments.seed,)))
    until = getattr(arguments, "until", None)
    return Request(
        name=arguments.name,
        data=arguments.data or _named_data(),
        settings=settings,
        worker_count=getattr(arguments, "workers", None),
        until=parse_threshold(until) if until else None,
        method=getattr(arguments, "method", None),
        with_tensorboard=getattr(arguments, "tensorboard", False),
        together=getattr(arguments, "together", 1),
        device=getattr(arguments, "device", "cpu"),
    )


def _named_data() -> Path | None:
    """Return where the environment says data sets lie; it is read here and nowhere else."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


if __name__ == "__main__":
    sys.exit(main())
