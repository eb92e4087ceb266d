"""Draw what was said: spectrograms, and where a voice looked in its text while it spoke."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS_PER_INCH = 110
_PANEL_INCHES = (3.6, 2.4)


class Shown(NamedTuple):
    """An utterance to draw: log-mels ``(mel, frames)``, attention ``(steps, text)`` or None."""

    title: str
    mel: Tensor
    attention: Tensor | None


def draw_utterances(columns: Sequence[Shown], path: Path, *, text: str) -> None:
    """Draw utterances of one text side by side as PNG: spectrograms, and below them attention.

    All spectrograms have the first one's colour scale. A column without attention is empty below;
    if none has any, there is one row. Characters of ``text`` stand beside the attention. The
    picture's folder is made.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = 2 if any(shown.attention is not None for shown in columns) else 1
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * len(columns), height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    low, high = float(columns[0].mel.min()), float(columns[0].mel.max())
    for place, shown in enumerate(columns, start=1):
        _draw_mel(figure.add_subplot(rows, len(columns), place), shown, low=low, high=high)
        if shown.attention is not None:
            axes = figure.add_subplot(rows, len(columns), len(columns) + place)
            _draw_attention(axes, shown.attention, text)
    figure.suptitle(text.strip(), fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH, format="png")


def _draw_mel(axes: "Axes", shown: Shown, *, low: float, high: float) -> None:
    axes.imshow(shown.mel.numpy(), origin="lower", aspect="auto", cmap="magma", vmin=low, vmax=high)
    axes.set_title(shown.title, fontsize=9)
    axes.set_xlabel("frame")
    axes.set_ylabel("mel channel")


def _draw_attention(axes: "Axes", attention: Tensor, text: str) -> None:
    axes.imshow(attention.T.numpy(), origin="lower", aspect="auto", vmin=0, vmax=1)
    axes.set_xlabel("step")
    axes.set_ylabel("character")
    if len(text) == attention.shape[1]:
        axes.set_yticks(range(len(text)), list(text), fontsize=4)
