"""The subcommands ``attention``, ``embeddings``, ``clients`` and ``novel``, on finished runs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from models.settings.hypernetwork import EmbeddingFitSettings
from simulation.commands.data_argument import add_data

if TYPE_CHECKING:
    from simulation.understanding.novel import NovelCurve


def add_attention(parser: argparse.ArgumentParser, data: Path | None) -> None:
    """Add the flags of ``attention``; ``data`` is where data sets lie unless it is told."""
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folder of a finished run; several are compared on images of the first",
    )
    add_data(parser, data)
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        dest="clients",
        help="client whose attention is shown; may be repeated (default: the first three)",
    )
    parser.add_argument(
        "--images", type=int, default=6, help="test images to show (default: %(default)s)"
    )
    _add_png(parser, "attention.png")
    parser.set_defaults(command=_attention)


def add_embeddings(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``embeddings``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    _add_png(parser, "embeddings.png")
    parser.add_argument("--json", action="store_true", help="print the purity as JSON")
    parser.set_defaults(command=_embeddings)


def add_clients(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``clients``."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    _add_png(parser, "clients.png")
    parser.set_defaults(command=_clients)


def add_novel(parser: argparse.ArgumentParser, data: Path | None) -> None:
    """Add the flags of ``novel``; ``data`` is where data sets lie unless it is told."""
    fit = EmbeddingFitSettings()
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    add_data(parser, data)
    parser.add_argument(
        "--epochs",
        type=int,
        default=5,
        help="passes over each novel client's own examples (default: %(default)s)",
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=fit.start_count,
        help="embeddings that are drawn; the best on a client's own examples is fitted "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=fit.learning_rate,
        help="step size of an embedding, where the method has one; everything else steps as in "
        "the run (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=fit.batch_size,
        help="examples in one step of an embedding (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="of a voice: seconds of speech of each novel speaker that it is fitted to (default: "
        "all that the speaker trains on)",
    )
    _add_png(parser, "novel.png")
    parser.add_argument("--json", action="store_true", help="print the curves as JSON")
    parser.set_defaults(command=_novel)


def _add_png(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--png", type=Path, default=Path(name), help="file to write (default: %(default)s)"
    )


def _attention(arguments: argparse.Namespace) -> int:
    from simulation.understanding.commands import attention

    attention(
        arguments.runs,
        arguments.png,
        clients=arguments.clients,
        image_count=arguments.images,
        data=arguments.data,
    )
    print(arguments.png)
    return 0


def _embeddings(arguments: argparse.Namespace) -> int:
    from simulation.understanding.commands import embeddings

    purity = embeddings(arguments.run, arguments.png)
    if arguments.json:
        print(msgspec.json.encode(purity).decode())
    elif purity is None:
        print("clients have no classes to be alike by")
    else:
        print(
            f"nearest neighbour of the same group: {purity.learnt:.3f} of the clients, "
            f"{purity.drawn:.3f} before training, {purity.chance:.3f} by chance"
        )
    if not arguments.json:
        print(arguments.png)
    return 0


def _clients(arguments: argparse.Namespace) -> int:
    from simulation.understanding.commands import histogram

    histogram(arguments.runs, arguments.png)
    print(arguments.png)
    return 0


def _novel(arguments: argparse.Namespace) -> int:
    from simulation.understanding.commands import novel

    settings = EmbeddingFitSettings(
        start_count=arguments.starts,
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
    )
    curves = novel(
        arguments.runs,
        arguments.png,
        settings=settings,
        data=arguments.data,
        longest_s=arguments.seconds,
    )
    if arguments.json:
        print(msgspec.json.encode(curves).decode())
    else:
        for name, curve in curves.items():
            _tell(name, curve)
        print(arguments.png)
    return 0


def _tell(name: str, curve: "NovelCurve") -> None:
    print(f"{name}: method {curve.method}, {curve.novel_clients} novel clients")
    print(f"  numbers fitted for each   {curve.fitted_values:,}")
    for epoch, value in enumerate(curve.values):
        print(f"  {curve.figure} after {epoch} epochs    {value:.4f}")
    print(f"  trained clients' {curve.figure} {curve.trained_value:.4f}")
    print(f"  after 1 epoch over that   {curve.ratio:.3f}")
    print(f"  kept with the run         {'yes' if curve.kept else 'no'}")
