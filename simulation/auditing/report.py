"""Write an audit as one page that can be mailed: no script, no file beside it."""

import base64
import io
from collections.abc import Callable, Iterable
from html import escape
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from privacy.auditing.exposure import UNLEARNED_BITS, Exposure
from privacy.auditing.judgement import FAILURE_RATE
from simulation.auditing.canaries import CanaryRounds
from simulation.auditing.mechanism import MechanismAudit
from simulation.auditing.result import AuditResult
from simulation.auditing.uploads import RoundLeakage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Audit of $name</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem 1rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd;
         vertical-align: top; font-weight: normal; }
th { color: #555; }
img { width: 19rem; margin-right: .6rem; }
.fault { color: #a00; }
</style></head><body>
<h1>Audit of $name</h1>
<p><strong>$verdict</strong></p>
$faults
<table>$rows</table>
<p>$pictures</p>
<p>$reading</p>
</body></html>
""")

_READING = (
    "Measured noise multipliers hold for an observer who knows everybody else's update and sees "
    "every model of a round; bounds are wrong with a chance of {rate:g}. Epsilons are those of "
    "one round, without amplification by sampling. AUC is the chance that a word that was typed "
    "scores above one that was not: 0.5 is a blind guess. Planted sentences that were not learned "
    "have {bits:.2f} bits on average."
)


def report_page(result: AuditResult, rounds: CanaryRounds | None) -> str:
    """Return the page as HTML with its pictures inside, those of the canaries' scores if any."""
    pictures = []
    if result.canaries is not None and rounds is not None:
        pictures.append(_canary_picture(result.canaries, rounds))
    if result.leakage is not None:
        pictures.append(_leakage_picture(result.leakage))
    if result.secrets is not None:
        pictures.append(_exposure_picture(result.secrets.exposure))
    return _PAGE.substitute(
        name=escape(result.name),
        verdict=escape(result.verdict),
        faults="".join(f'<p class="fault">{escape(fault)}</p>' for fault in result.faults),
        rows=_rows(result.figures().items()),
        pictures="".join(pictures),
        reading=escape(_READING.format(rate=FAILURE_RATE, bits=UNLEARNED_BITS)),
    )


def _rows(figures: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in figures
    )


def _canary_picture(audit: MechanismAudit, rounds: CanaryRounds) -> str:
    # In units of what one canary moves; without any movement, as they are.
    unit = abs(audit.estimate.displacement) or 1.0
    scores = (rounds.scores - rounds.scores[~rounds.included].mean()) / unit

    def draw(axes: "Axes") -> None:
        bins = np.linspace(scores.min(), scores.max(), 60).tolist()
        axes.hist(scores[~rounds.included], bins=bins, alpha=0.6, label="left out")
        axes.hist(scores[rounds.included], bins=bins, alpha=0.6, label="took part")
        axes.set_xlabel("score / what one client moves")
        axes.set_ylabel("canaries")
        axes.set_title("Canaries in the release")
        axes.legend()

    return _picture(draw, "histogram of canary scores")


def _leakage_picture(leakage: RoundLeakage) -> str:
    bars = {
        "frequency": leakage.upload.by_frequency,
        "upload": leakage.upload.by_both,
        "release": leakage.release.by_both,
    }

    def draw(axes: "Axes") -> None:
        axes.bar(list(bars), list(bars.values()), color=["tab:gray", "tab:orange", "tab:blue"])
        axes.axhline(0.5, linestyle="--", color="black", linewidth=1)
        axes.set_ylim(0, 1)
        axes.set_ylabel("AUC")
        axes.set_title("One person's words from one round")

    return _picture(draw, "bars of AUC")


def _exposure_picture(exposure: Exposure) -> str:
    def draw(axes: "Axes") -> None:
        axes.bar(range(1, len(exposure.bits) + 1), sorted(exposure.bits, reverse=True))
        axes.axhline(UNLEARNED_BITS, linestyle="--", color="black", linewidth=1, label="chance")
        axes.set_ylim(0, exposure.largest_possible_bits)
        axes.set_xlabel("planted sentence")
        axes.set_ylabel("bits")
        axes.set_title("Exposure in the released model")
        axes.legend()

    return _picture(draw, "bars of exposure")


def _picture(draw: Callable[["Axes"], None], alternative: str) -> str:
    # The object interface: no global state, no display, and nothing to close.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(4.2, 3.2), layout="constrained"))
    draw(canvas.figure.add_subplot())
    written = io.BytesIO()
    canvas.figure.savefig(written, dpi=120, format="png")
    encoded = base64.b64encode(written.getvalue()).decode()
    return f'<img alt="{escape(alternative)}" src="data:image/png;base64,{encoded}">'
