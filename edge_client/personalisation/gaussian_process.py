"""Classify with Gaussian processes on features that the network makes: pFedGP.

Every tensor is shared. A client trains the network so that its own processes predict one half of
its examples from the other. To predict, it makes them from all its training examples, and forgets
them. They read what the network's last layer gives, so that layer is trained like the others; the
authors' network, too, ends in a linear layer, of 84.

References:
    [pFedGP] Achituve, Shamsian, Navon, Chechik, Fetaya, "Personalized Federated Learning with
        Gaussian Processes", NeurIPS 2021, arXiv:2106.15482.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from models.networks.registry import Network
from models.personal.gaussian_process_tree import GaussianProcessTree, predictive_loss
from models.plan.plan import TrainingSettings
from models.settings.gaussian_process import GaussianProcessSettings
from models.settings.personalisation import PFedGpSettings
from models.tasks.feature_task import FeatureTask, feature_task, head_of
from models.tasks.metrics import Counts
from models.vector.schema import Schema, TensorSpec

_EXAMPLES_AT_ONCE = 64  # While features are made; a constant, so that no draw depends on it.
_FLOOR = 1e-6
"""Share of a uniform guess in a prediction: else one example of a class that the client never had
would make every mean log-loss infinite."""


class GaussianProcessHalf:
    """The shared network trained for the client's processes, which predict ([pFedGP])."""

    def __init__(self, settings: PFedGpSettings) -> None:
        self._settings = settings

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return nothing: the processes have no parameters."""
        return ()

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return nothing."""
        return {}

    def train(self, client: ClientRound) -> Learnt:
        """Take ``inner_steps`` steps on all examples, ignoring the plan's epochs and batch size."""
        descent = client.descent
        objective = PredictiveObjective(
            feature_task(descent.task, self._settings.method),
            descent.examples,
            descent.training,
            settings=self._settings.gaussian_process,
            generator=_derived(descent.generator, descent.device),
        )
        mean_loss = descent.run(
            client.optimiser, epochs=self._settings.inner_steps, objective=objective
        )
        return Learnt(mean_loss, {})

    @torch.no_grad()
    def evaluate(self, client: ClientScoring) -> Counts:
        """Score the processes' predictions; a client that never saw an example guesses."""
        task = feature_task(client.task, self._settings.method)
        network = client.network.eval()
        tree = self._tree(client, task)
        counts = Counts()
        for batch in task.scored_batches(network, client.examples, batch_size=client.batch_size):
            features, targets = _read(task, network, batch)
            class_count = features.shape[1]
            guess = torch.full((), 1 / class_count, dtype=torch.float64, device=features.device)
            if tree is None:
                mixed = guess.expand(len(targets), class_count)
            else:
                probabilities = tree.class_probabilities(features, class_count)
                mixed = torch.lerp(probabilities, guess, _FLOOR)
            counts += task.count(mixed.log().float(), targets)
        return counts

    def _tree(
        self, client: ClientScoring, task: FeatureTask[Any, Any]
    ) -> GaussianProcessTree | None:
        known = client.training_examples
        if known is None or not task.example_count(known):
            return None
        batches = task.scored_batches(client.network, known, batch_size=_EXAMPLES_AT_ONCE)
        parts = [_read(task, client.network, batch) for batch in batches]
        features, labels = (torch.cat(values) for values in zip(*parts, strict=True))
        generator = _derived(client.generator, client.device)
        return GaussianProcessTree(features, labels, self._settings.gaussian_process, generator)


class PredictiveObjective:
    """An objective: how badly the processes tell half of the examples from the rest."""

    def __init__(
        self,
        task: FeatureTask[Any, Any],
        examples: Any,  # of the task
        training: TrainingSettings,
        *,
        settings: GaussianProcessSettings,
        generator: torch.Generator,
    ) -> None:
        self._task = task
        self._examples = examples
        whole = max(task.example_count(examples), 1)
        self._training = msgspec.structs.replace(training, batch_size=whole)
        self._settings = settings
        self._generator = generator

    def batches(self, network: Network, generator: torch.Generator) -> Iterator[Any]:
        """Yield all examples at once."""
        return self._task.batches(self._examples, self._training, network, generator)

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the predictive loss in nats, the number of examples, and None."""
        features, labels = _read(self._task, network, batch)
        loss = predictive_loss(features, labels, self._settings, self._generator)
        return loss, len(labels), None


def _read(task: FeatureTask[Any, Any], network: Network, batch: Any) -> tuple[Tensor, Tensor]:
    features, labels = task.features(network, batch)
    return head_of(network)(features), labels


def _derived(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """Return a generator on the device, seeded by one draw."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return torch.Generator(device=device).manual_seed(seed)
