"""The subcommand ``sotto-simulate listen``: measures in place of listeners."""

import argparse
import sys
from pathlib import Path

import msgspec

from simulation.commands.data_argument import add_data
from simulation.listening.defaults import GRIFFIN_LIM_ITERATIONS, RECOGNISER_EPOCHS


def add_listen(parser: argparse.ArgumentParser, data: Path | None) -> None:
    """Add the flags of ``listen``; ``data`` is where data sets lie unless it is told."""
    # One idea: the flags of one command, one after the other.
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "run", nargs="?", type=Path, metavar="RUN", help="folder of a finished run of speech"
    )
    which.add_argument(
        "--copy-synthesis",
        metavar="SET",
        help="listen to a data set's own clips, made again from their spectrograms, instead of a "
        "voice: espeak, ljspeech, an4 or fsdd",
    )
    add_data(parser, data)
    parser.add_argument(
        "--to",
        type=Path,
        help="folder to write (default: RUN/listening, or runs/listening-SET)",
    )
    parser.add_argument(
        "--clips", type=int, default=16, help="held-out clips to listen to (default: %(default)s)"
    )
    parser.add_argument(
        "--recogniser",
        type=Path,
        metavar="FILE",
        help="recogniser to use, trained and written if it is not there (default: "
        "recogniser.safetensors in the folder that is written)",
    )
    parser.add_argument(
        "--train-recogniser",
        action="store_true",
        help="train the recogniser again even if it is there",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=RECOGNISER_EPOCHS,
        help="passes of the recogniser over the training clips (default: %(default)s, little more "
        "than a minute of a core for 700 clips)",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=GRIFFIN_LIM_ITERATIONS,
        help="of Griffin-Lim (default: %(default)s)",
    )
    parser.add_argument(
        "--vocoder",
        type=Path,
        metavar="RUN",
        help="folder of a finished run of task vocoder that makes the sound, not Griffin-Lim",
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        action="append",
        default=[],
        metavar="BUNDLE",
        help="exported voice of the run to listen to as well, with the same vocoder as the others; "
        "give it once for each",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(command=_listen)


def _listen(arguments: argparse.Namespace) -> int:
    from simulation.listening.commands import ListenRequest, listen_to_corpus, listen_to_run
    from simulation.listening.corpus import CorpusSettings
    from simulation.listening.recogniser_training import TrainingSettings
    from simulation.listening.table import markdown

    name = arguments.copy_synthesis
    default = Path("runs") / f"listening-{name}" if name else arguments.run / "listening"
    request = ListenRequest(
        folder=arguments.to or default,
        clip_count=arguments.clips,
        recogniser=arguments.recogniser,
        with_training=arguments.train_recogniser,
        training=TrainingSettings(epochs=arguments.epochs),
        iterations=arguments.iterations,
        vocoder=arguments.vocoder,
        bundles=tuple(arguments.bundle),
    )
    if name:
        if request.bundles:
            raise ValueError("--bundle needs the folder of the run that the voice is from")
        report = listen_to_corpus(CorpusSettings(dataset=name), arguments.data, request)
    else:
        report = listen_to_run(arguments.run, arguments.data, request)
    if arguments.json:
        sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n")
    else:
        sys.stdout.write(markdown(report))
        sys.stdout.write(f"\n{request.folder}\n")
    return 0
