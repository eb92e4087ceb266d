"""Finished runs and sweeps: plain figures, models, pictures, and how a notebook shows them."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from export.commands.bundles import export_release
from export.commands.flags import Graph
from export.commands.people import bundle_kind
from models.networks.registry import Network
from models.vector.schema import RELEASED
from simulation.commands.runs import plot, told_of
from simulation.figures.metrics import Value, in_words, read_metrics, series
from simulation.runs.sweep import Row, markdown
from simulation.understanding.finished_run import open_run

_FOLLOWED = ("valid_perplexity", "mel_l1", "spectral_distance")


@dataclass(frozen=True)
class Picture:
    """A PNG file that a notebook shows."""

    path: Path

    def _repr_png_(self) -> bytes:
        """Return the picture."""
        return self.path.read_bytes()


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """A run that is over.

    Attributes:
        folder: Its folder, which every command takes.
        figures: Its final figures, those of ``sotto-simulate run --json``.
        rounds: The figures of each round, from the first.
    """

    folder: Path
    figures: Mapping[str, Value]
    rounds: Sequence[Mapping[str, Value]]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Open the folder of a run.

        Raises:
            NoFinishedRunError: If there is no run, or it is not over.
        """
        found = open_run(Path(folder))
        path = found.folder.folder
        return cls(folder=path, figures=told_of(path, found.final), rounds=read_metrics(path))

    def series(self, figure: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rounds that have a figure, and its values, each of shape ``(rounds,)``."""
        numbers, values = series(self.rounds, figure)
        return np.array(numbers, dtype=np.int64), np.array(values, dtype=np.float64)

    def model(self, client: str | None = None) -> Network:
        """Return the network that the final figures are of, in evaluation mode.

        Args:
            client: Client whose own model it is; None for the one that everybody shares.

        Raises:
            ValueError: If the run has no shared whole model, or the client has nothing of its own.
        """
        run = open_run(self.folder)
        if client is not None:
            if not run.layout.is_empty and run.kept_by(client) is None:
                raise ValueError(
                    f"{client} keeps nothing of its own in {self.folder}: it never trained, or "
                    "there is no such client"
                )
            return run.network_of(client)
        schema = run.config.schema
        if len(schema.with_roles(*RELEASED).tensors) != len(schema.tensors):
            raise ValueError(
                f'method "{run.plan.personalisation.method}" releases no whole model; '
                "give a client, as model('device-0001')"
            )
        return run.network_of("")

    def plot(self, figure: str | None = None, *, path: str | Path | None = None) -> Picture:
        """Draw a figure by round and write it as PNG.

        Args:
            figure: Its name; None takes what the run was followed by.
            path: File to write; None for one in the run's folder, named after the figure.

        Raises:
            ValueError: If no round has the figure, or it is finite in none.
        """
        figure = self._followed_by() if figure is None else figure
        target = self.folder / f"{figure}.png" if path is None else Path(path)
        plot([self.folder], target, figure=figure)
        return Picture(target)

    def export(
        self, out: str | Path, *, precision: Literal["float32", "int8"] = "float32"
    ) -> dict[str, object]:
        """Write the newest model as a bundle, folder or .zip.

        Returns:
            What ``sotto-export keyboard --json`` (or ``image``, ``speech``) prints.

        Raises:
            ValueError: If the model or the target is refused.
        """
        asked = Graph(source=self.folder, out=Path(out), precision=precision)
        return export_release(asked, bundle_kind(open_run(self.folder).plan.task))

    def _followed_by(self) -> str:
        named = {name for row in self.rounds for name in row}
        return next((name for name in _FOLLOWED if name in named), "train_loss")

    def _repr_html_(self) -> str:
        """Return the figures as a table, and the picture of the run."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(in_words(value))}</td></tr>"
            for name, value in self.figures.items()
        )
        return f"<table>{rows}</table>{self._picture()}"

    def _picture(self) -> str:
        try:
            encoded = base64.b64encode(self.plot()._repr_png_()).decode()
        except ValueError as error:
            return f"<p>{escape(str(error))}</p>"
        return f'<img alt="by round" src="data:image/png;base64,{encoded}">'

    def __repr__(self) -> str:
        name = self._followed_by()
        _, values = self.series(name)
        newest = f", {name} {values[-1]:.4g}" if len(values) else ""
        return f"Run({self.folder}, {len(self.rounds)} rounds{newest})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep:
    """The table of a sweep.

    Attributes:
        folder: Its folder, with a run in each folder below.
        figure: The figure in the table: final, or of which a threshold was waited for.
        rows: The rows of ``sotto-simulate sweep --json``.
    """

    folder: Path
    figure: str
    rows: Sequence[Row]

    def plot(self) -> Picture:
        """Return the picture of the table; ValueError if no row has the figure."""
        path = self.folder / "sweep.png"
        if not path.exists():
            raise ValueError(f"no run of {self.folder} reached {self.figure}: nothing to draw")
        return Picture(path)

    def _repr_markdown_(self) -> str:
        """Return the table."""
        return markdown(self.rows, self.figure)

    def _repr_png_(self) -> bytes | None:
        """Return the picture, where there is one."""
        path = self.folder / "sweep.png"
        return path.read_bytes() if path.exists() else None

    def __repr__(self) -> str:
        return markdown(self.rows, self.figure)
