"""The subcommands ``attention``, ``embeddings``, ``clients`` and ``novel``, on finished runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from models.settings.hypernetwork import EmbeddingFitSettings
from privacy.foundation.flags import Flag
from simulation.commands.flags import WithData

if TYPE_CHECKING:
    from simulation.understanding.novel import NovelCurve


_FIT = EmbeddingFitSettings()


class Looked(WithData, frozen=True, kw_only=True):
    """Attention to draw.

    Attributes:
        runs: Folder of a finished run; several are compared on images of the first.
        client: Client whose attention is shown; may be repeated (default: the first three).
        images: Test images to show.
        png: File to write.
    """

    runs: Annotated[list[Path], Flag("RUN", positional=True)]
    client: list[str] = msgspec.field(default_factory=list)
    images: int = 6
    png: Path = Path("attention.png")


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings to draw.

    Attributes:
        run: Folder of a finished run.
        png: File to write.
        json: Print the purity as JSON.
    """

    run: Annotated[Path, Flag("RUN", positional=True)]
    png: Path = Path("embeddings.png")
    json: bool = False


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracies to draw.

    Attributes:
        runs: Folder of a run.
        png: File to write.
    """

    runs: Annotated[list[Path], Flag("RUN", positional=True)]
    png: Path = Path("clients.png")


class Fitted(WithData, frozen=True, kw_only=True):
    """Novel clients to fit a model to.

    Attributes:
        runs: Folder of a run.
        epochs: Passes over each novel client's own examples.
        starts: Embeddings that are drawn; the best on a client's own examples is fitted.
        learning_rate: Step size of an embedding, where the method has one; everything else steps
            as in the run.
        batch_size: Examples in one step of an embedding.
        seconds: Seconds of speech of each novel speaker that a voice is fitted to (default: all
            that the speaker trains on).
        png: File to write.
        json: Print the curves as JSON.
    """

    runs: Annotated[list[Path], Flag("RUN", positional=True)]
    epochs: int = 5
    starts: int = _FIT.start_count
    learning_rate: float = _FIT.learning_rate
    batch_size: int = _FIT.batch_size
    seconds: Annotated[float | None, Flag("S")] = None
    png: Path = Path("novel.png")
    json: bool = False


def attention(asked: Looked) -> int:
    """Draw where clients' own attention looks in images."""
    from simulation.understanding import commands

    commands.attention(
        asked.runs,
        asked.png,
        clients=asked.client,
        image_count=asked.images,
        data=asked.data_folder,
    )
    print(asked.png)
    return 0


def embeddings(asked: Mapped) -> int:
    """Draw what a hypernetwork learnt of its clients."""
    from simulation.understanding import commands

    purity = commands.embeddings(asked.run, asked.png)
    if asked.json:
        print(msgspec.json.encode(purity).decode())
    elif purity is None:
        print("clients have no classes to be alike by")
    else:
        print(
            f"nearest neighbour of the same group: {purity.learnt:.3f} of the clients, "
            f"{purity.drawn:.3f} before training, {purity.chance:.3f} by chance"
        )
    if not asked.json:
        print(asked.png)
    return 0


def clients(asked: Spread) -> int:
    """Draw how accuracy is spread over a run's clients."""
    from simulation.understanding.commands import histogram

    histogram(asked.runs, asked.png)
    print(asked.png)
    return 0


def novel(asked: Fitted) -> int:
    """Fit a finished model to clients it never saw."""
    from simulation.understanding import commands

    settings = EmbeddingFitSettings(
        start_count=asked.starts,
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
    )
    curves = commands.novel(
        asked.runs,
        asked.png,
        settings=settings,
        data=asked.data_folder,
        longest_s=asked.seconds,
    )
    if asked.json:
        print(msgspec.json.encode(curves).decode())
    else:
        for name, curve in curves.items():
            _tell(name, curve)
        print(asked.png)
    return 0


def _tell(name: str, curve: "NovelCurve") -> None:
    print(f"{name}: method {curve.method}, {curve.novel_clients} novel clients")
    print(f"  numbers fitted for each   {curve.fitted_values:,}")
    for epoch, value in enumerate(curve.values):
        print(f"  {curve.figure} after {epoch} epochs    {value:.4f}")
    print(f"  trained clients' {curve.figure} {curve.trained_value:.4f}")
    print(f"  after 1 epoch over that   {curve.ratio:.3f}")
    print(f"  kept with the run         {'yes' if curve.kept else 'no'}")
    for client, told in curve.people.items():
        print(f"  {client}: {told}")
