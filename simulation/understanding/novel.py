"""Fit a finished run's model to the clients it never saw, and follow how well it serves them.

What the run has learnt of everyone stays as it is. The first figure is that of the model before
any fitting; beside the curve stands what the clients reach that were trained on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edge_client.compute import prepare_compute
from edge_client.local_round import LocalTrainer
from edge_client.new_client import Fitted, NewClientFit
from models.hypernetwork_settings import EmbeddingFitSettings
from models.metrics import Counts
from simulation.plots import write_figure
from simulation.population import NovelClient, Population
from simulation.understanding.finished_run import FinishedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class NovelCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Hold how well novel clients are served as a model is fitted to them.

    Attributes:
        method: The run's personalisation method.
        novel_clients: How many there are.
        fitted_values: Numbers that are fitted for each of them.
        accuracy: Pooled over their test examples, after 0, 1, 2, ... epochs.
        trained_accuracy: Pooled accuracy of the clients that were trained on.
        ratio: Accuracy after one epoch over that of the trained clients.
    """

    method: str
    novel_clients: int
    fitted_values: int
    accuracy: tuple[float, ...]
    trained_accuracy: float
    ratio: float


def novel_curve(
    run: FinishedRun, population: Population, settings: EmbeddingFitSettings
) -> NovelCurve:
    """Fit the run's model to each novel client and return the curve.

    Args:
        run: Whose model.
        population: The run's, with its novel clients.
        settings: Epochs, at least 1, and how an embedding steps.

    Raises:
        DivergedFitError: If an embedding leaves the finite numbers.
        ValueError: If nobody is novel, or the run has no accuracy of its clients.
    """
    trained = run.final.get("accuracy")
    if not population.novel or not isinstance(trained, float):
        raise ValueError(
            f"{run.folder.folder} kept no client out of training; run it with "
            "--set data.novel_share=0.2"
        )
    prepare_compute("cpu", threads=1)
    hypernetwork = run.hypernetwork()[0] if run.method.generated.tensors else None
    fit, trainer = NewClientFit(run.plan, hypernetwork), LocalTrainer(run.plan)
    counts = [Counts()] * (settings.epochs + 1)
    for name, client in population.novel.items():

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

        fit.fit(run.released, client.train, client_name=name, settings=settings, after_epoch=score)
    accuracy = tuple(own.accuracy for own in counts)
    return NovelCurve(
        method=run.plan.personalisation.method,
        novel_clients=len(population.novel),
        fitted_values=fit.fitted_count,
        accuracy=accuracy,
        trained_accuracy=trained,
        ratio=accuracy[1] / trained,
    )


def write_novel_curves(curves: Mapping[str, NovelCurve], path: Path) -> None:
    """Draw accuracy against tuning epochs, one line a run, and write it as PNG.

    A dashed line of the same colour stands at what the run's own clients reach.

    Args:
        curves: By the run's name.
        path: PNG file to write.
    """

    def draw(axes: "Axes") -> None:
        for colour, (name, curve) in enumerate(curves.items()):
            axes.plot(
                range(len(curve.accuracy)),
                curve.accuracy,
                marker="o",
                color=f"C{colour}",
                label=f"{name} ({curve.fitted_values:,} numbers fitted)",
            )
            axes.axhline(curve.trained_accuracy, color=f"C{colour}", linestyle="--", linewidth=1)
        axes.set_xlabel("epochs of fitting; dashed: clients that were trained on")
        axes.set_ylabel("accuracy of novel clients")
        axes.locator_params(axis="x", integer=True)

    write_figure(path, draw)
