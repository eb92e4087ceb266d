"""A generic head that learns as if all classes were equal, and a personal one that adds to it.

The generic head and the body minimise balanced softmax: the logits plus the log of how often the
client has each class. The personal head learns what is left, on features and generic logits that it
does not move, and the prediction is the sum. It starts at zero, so that a client that never trained
predicts as everyone's model.

References:
    [FedRoD] Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image
        Classification", ICLR 2022, arXiv:2107.00778; the linear variant.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.settings.personalisation import FedRodSettings, FedTpSettings
from models.tasks.feature_task import FeatureTask, feature_task, head_of
from models.tasks.metrics import Counts
from models.vector.named_parts import Part, part_names
from models.vector.schema import Schema, TensorSpec

_PREFIX = "personal_"
_WEIGHT, _BIAS = "personal_head.weight", "personal_head.bias"


class BalancedHeadHalf:
    """Body and generic head by balanced softmax, then a personal head beside ([FedRoD])."""

    def __init__(self, settings: FedRodSettings | FedTpSettings) -> None:
        self._settings = settings

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return the personal head, of the generic one's shape.

        Raises:
            MissingPartError: If the model has no head of its own.
        """
        names = part_names(schema, Part.HEAD, method=self._settings.method)
        return tuple(
            msgspec.structs.replace(spec, name=_PREFIX + spec.name)
            for spec in schema.tensors
            if spec.name in names
        )

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return a head of zeros."""
        return {spec.name: torch.zeros(spec.shape) for spec in self.extra_tensors(schema)}

    def train(self, client: ClientRound) -> Learnt:
        """Run every local epoch; after each batch's step the personal head takes one of its own."""
        descent = client.descent
        rate = self._settings.personal_learning_rate
        objective = BalancedSoftmax(
            feature_task(descent.task, self._settings.method),
            descent.examples,
            descent.training,
            head=PersonalHead(client.extras, descent.device),
            learning_rate=descent.training.learning_rate if rate is None else rate,
        )
        mean_loss = descent.run(
            client.optimiser, objective=objective, after_batch=objective.step_personal_head
        )
        return Learnt(mean_loss, objective.head.extras())

    @torch.no_grad()
    def evaluate(self, client: ClientScoring) -> Counts:
        """Score the sum of both heads."""
        task = feature_task(client.task, self._settings.method)
        head = PersonalHead(client.extras, client.device)
        network = client.network.eval()
        counts = Counts()
        for batch in task.scored_batches(network, client.examples, batch_size=client.batch_size):
            features, targets = task.features(network, batch)
            counts += task.count(head_of(network)(features) + head.logits(features), targets)
        return counts


class PersonalHead:
    """A client's personal head while it is trained or asked, copied from what the client keeps."""

    def __init__(self, extras: Mapping[str, Tensor], device: torch.device) -> None:
        self._values = {name: value.to(device, copy=True) for name, value in extras.items()}

    def logits(self, features: Tensor) -> Tensor:
        """Return what the head adds, shape ``(targets, classes)``, for features alike."""
        return functional.linear(features, self._values[_WEIGHT], self._values.get(_BIAS))

    def step(self, features: Tensor, generic: Tensor, targets: Tensor, rate: float) -> None:
        """Take one step of plain SGD on the cross-entropy of the sum ([FedRoD] Eq. 8).

        ``features``, float32 ``(targets, embed)``, and the generic logits, ``(targets, classes)``,
        are not moved. ``targets`` are the right classes, int64, ``(targets,)``.
        """
        for value in self._values.values():
            value.requires_grad_(True)
        with torch.enable_grad():
            loss = functional.cross_entropy(generic + self.logits(features), targets)
        gradients = torch.autograd.grad(loss, list(self._values.values()))
        for value, gradient in zip(self._values.values(), gradients, strict=True):
            value.requires_grad_(False).sub_(gradient, alpha=rate)

    def extras(self) -> dict[str, Tensor]:
        """Return the head as the client keeps it, on the CPU."""
        return {name: value.cpu() for name, value in self._values.items()}


class BalancedSoftmax:
    """The objective CE(logits + log π_i) over the client's examples; a ``LocalObjective``."""

    def __init__(
        self,
        task: FeatureTask[Any, Any],
        examples: Any,  # of the task
        training: TrainingSettings,
        *,
        head: PersonalHead,
        learning_rate: float,
    ) -> None:
        self.head = head
        self._task = task
        self._examples = examples
        self._training = training
        self._rate = learning_rate
        self._frequencies: Tensor | None = None
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def batches(self, network: Network, generator: torch.Generator) -> Iterator[Any]:
        """Yield what the task yields."""
        return self._task.batches(self._examples, self._training, network, generator)

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the balanced cross-entropy of the generic head, the targets, and None."""
        features, targets = self._task.features(network, batch)
        logits = head_of(network)(features).float()
        self._last = features.detach().float(), logits.detach(), targets
        balanced = logits + self._log_frequencies(logits)
        return functional.cross_entropy(balanced, targets), len(targets), None

    def step_personal_head(self) -> None:
        """Train the personal head on what the body made of the last batch."""
        if self._last is not None:
            self.head.step(*self._last, self._rate)

    def _log_frequencies(self, logits: Tensor) -> Tensor:
        """Return the log of each class' count, -inf for 0; counts give the same loss as shares."""
        if self._frequencies is None:
            targets = self._task.targets(self._examples)
            counts = torch.bincount(targets, minlength=logits.shape[1])
            self._frequencies = counts.to(logits.device, torch.float32).log()
        return self._frequencies
