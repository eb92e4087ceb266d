"""Fit a finished run's model to the clients it never saw, and follow how well it serves them.

The run's shared state stays as it is. The curve begins before any fitting; beside it stands the
trained clients' figure. A voice is followed by the distance of its spectrograms, and can be fitted
to a minute of each new speaker. The last fit is kept if it is all that makes a client's model.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edge_client.descent.compute import prepare_compute
from edge_client.personalisation.adapted import comparison_of
from edge_client.personalisation.state import PersonalState
from edge_client.training.local_round import LocalTrainer
from edge_client.training.new_client import Fitted, NewClientFit
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.personalisation import AdaptedSettings
from models.settings.voice import TransformerTtsSettings
from models.tasks.metrics import Counts
from models.tasks.speech_examples import SpeechExamples
from simulation.figures.plots import write_figure
from simulation.population.population import NovelClient, Population
from simulation.understanding.finished_run import FinishedRun
from simulation.understanding.novel_states import NovelFit, can_keep_fits, keep_fits

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_FOLLOWED: Mapping[str, tuple[str, Callable[[Counts], float]]] = {
    "speech": ("mel_l1", lambda own: own.mean_log_loss)
}
"""The figure that shows how well a client is served, by task; accuracy for all others."""


class NovelCurve(msgspec.Struct, frozen=True, kw_only=True):
    """How well novel clients are served as a model is fitted to them.

    Attributes:
        method: The run's personalisation method.
        fitted_values: Numbers that are fitted for each client.
        figure: ``accuracy``, or ``mel_l1`` of voices, of which less is better.
        values: The figure, pooled over their test examples, after 0, 1, 2, ... epochs.
        trained_value: The same of the clients that were trained on.
        ratio: The value after one epoch over that of the trained clients.
        kept: Whether the run's folder now keeps the last fit, as for trained clients.
        people: A line on each novel client whose fit has more to tell, by name: how much speech
            there was, and whether adapting everyone's model helped.
    """

    method: str
    novel_clients: int
    fitted_values: int
    figure: str
    values: tuple[float, ...]
    trained_value: float
    ratio: float
    kept: bool
    people: dict[str, str] = {}


def novel_curve(
    run: FinishedRun,
    population: Population,
    settings: EmbeddingFitSettings,
    *,
    longest_s: float | None = None,
) -> NovelCurve:
    """Fit the run's model to each novel client, keep what can be kept, and return the curve.

    Speakers are fitted to at most ``longest_s`` seconds of their speech; None takes all.

    Raises:
        CodecError: If what is fitted leaves the finite numbers.
        DivergedFitError: If an embedding does.
        OSError: If what is fitted cannot be kept.
        ValueError: If nobody is novel, the run has no such figure of its clients, or seconds are
            given where there is no speech.
    """
    figure, value_of = _FOLLOWED.get(run.plan.task, ("accuracy", lambda own: own.accuracy))
    trained = run.final.get(figure)
    if not population.novel or not isinstance(trained, float):
        raise ValueError(
            f"{run.folder.folder} kept no client out of training; run it with "
            "--set data.novel_share=0.2"
        )
    prepare_compute("cpu", threads=1)
    # The released model stays; each client fits its own part alone.
    hypernetwork = run.hypernetwork()[0] if run.method.generated.tensors else None
    fit, trainer = NewClientFit(run.plan, hypernetwork), LocalTrainer(run.plan)
    counts = [Counts()] * (settings.epochs + 1)
    novel = population.novel
    if longest_s is not None:
        novel = {name: _shortened(run, client, longest_s) for name, client in novel.items()}
    # Scores after every epoch, summed over clients.
    states: dict[str, PersonalState] = {}
    for name, client in novel.items():

        def score(
            epoch: int, fitted: Fitted, name: str = name, client: NovelClient = client
        ) -> None:
            counts[epoch] += trainer.evaluate(
                fitted.parameters,
                client.test,
                client_name=name,
                training_examples=client.train,
                personal=fitted.personal,
            )
            states[name] = fitted.personal

        fit.fit(run.released, client.train, client_name=name, settings=settings, after_epoch=score)
    # Fits that make people's files can be kept beside the run.
    keeps = can_keep_fits(run)
    if keeps:
        keep_fits(run, states, NovelFit(epochs=settings.epochs, longest_s=longest_s))
    values = tuple(map(value_of, counts))
    return NovelCurve(
        method=run.plan.personalisation.method,
        novel_clients=len(population.novel),
        fitted_values=fit.fitted_count,
        figure=figure,
        values=values,
        trained_value=trained,
        ratio=values[1] / trained,
        kept=keeps,
        people=_people(run, novel, states),
    )


def _people(
    run: FinishedRun, novel: Mapping[str, NovelClient], fitted: Mapping[str, PersonalState]
) -> dict[str, str]:
    """Return a line on each client of whose fit there is something to say."""
    lines = {name: _told(run, client, fitted[name]) for name, client in novel.items()}
    return {name: line for name, line in lines.items() if line}


def _told(run: FinishedRun, client: NovelClient, fitted: PersonalState) -> str:
    """Return what there is to say of one client's fit, perhaps nothing."""
    told, settings, examples = [], run.config.model, client.train
    if isinstance(examples, SpeechExamples) and isinstance(settings, TransformerTtsSettings):
        seconds = len(examples.frames) * settings.mel.hop_size / settings.mel.sample_rate_hz
        plural = "" if len(examples) == 1 else "s"
        told.append(f"{seconds:.0f} s of speech in {len(examples)} clip{plural}")
    if isinstance(run.plan.personalisation, AdaptedSettings):
        told.append(comparison_of(fitted.extras).in_words())
    return "; ".join(told)


def _shortened(run: FinishedRun, client: NovelClient, longest_s: float) -> NovelClient:
    """Let a speaker be fitted to no more seconds of speech than that, but at least to one clip."""
    settings, examples = run.config.model, client.train
    if not isinstance(examples, SpeechExamples) or not isinstance(settings, TransformerTtsSettings):
        raise ValueError("seconds of speech can be given for a run of voices alone")
    if not 0 < longest_s < math.inf:
        raise ValueError(f"seconds of speech must be > 0 and finite, got {longest_s}")
    mel = settings.mel
    most = int(longest_s * mel.sample_rate_hz / mel.hop_size)
    return client._replace(train=examples.at_most(most))


def write_novel_curves(curves: Mapping[str, NovelCurve], path: Path) -> None:
    """Draw each run's figure by epochs of fitting, and write it as PNG.

    A dashed line of the same colour stands at the figure of the run's own clients.
    """

    def draw(axes: "Axes") -> None:
        for colour, (name, curve) in enumerate(curves.items()):
            axes.plot(
                range(len(curve.values)),
                curve.values,
                marker="o",
                color=f"C{colour}",
                label=f"{name} ({curve.fitted_values:,} numbers fitted)",
            )
            axes.axhline(curve.trained_value, color=f"C{colour}", linestyle="--", linewidth=1)
        axes.set_xlabel("epochs of fitting; dashed: clients that were trained on")
        figures = " or ".join(sorted({curve.figure for curve in curves.values()}))
        axes.set_ylabel(f"{figures} of novel clients")
        axes.locator_params(axis="x", integer=True)

    write_figure(path, draw)
