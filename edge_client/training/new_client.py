"""Fit a model to a client that took no part: what is its own is trained, everything else stays.

Nothing is sent, and nobody else's model changes. The fitted part depends on the method: an
embedding where a hypernetwork makes tensors, with the personal tensors beside it; else the personal
tensors, FedRoD's personal head, or a model of one's own; and every tensor where nothing is
personal. A tree of Gaussian processes needs no fitting. Method ``adapted`` fits what is personal
first, a voice's speaker, and adapts everyone's model at the end.

An embedding starts at the best of several draws by the client's own examples, and descends batch by
batch: its tensors are generated, take one step on the batch, and that step is pulled back to the
embedding. Small batches make one pass over few examples many steps.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV-B.3: novel clients.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor

from edge_client.descent.descent import Descent
from edge_client.descent.objective import LocalObjective, TaskObjective
from edge_client.descent.optimisers import Optimiser
from edge_client.personalisation.adapted import AdaptedHalf
from edge_client.personalisation.balanced_head import BalancedSoftmax, PersonalHead
from edge_client.personalisation.method import ClientRound
from edge_client.personalisation.registry import build_client_half
from edge_client.personalisation.state import PersonalState
from edge_client.training.client_network import ClientNetwork
from edge_client.training.users_scoring import EVALUATION_BATCH
from models.layers.dropout import use_generator
from models.networks.registry import Network
from models.networks.role_vectors import part_of, put_part
from models.personal.embedding_fit import LocalTraining, best_start, fit_embedding
from models.personal.hypernetwork import Hypernetwork, draw_embeddings
from models.plan.plan import Plan, TrainingSettings
from models.plan.roles import has_balanced_head
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.personalisation import (
    AdaptedSettings,
    DittoSettings,
    FedRodSettings,
    PFedGpSettings,
    PFedMeSettings,
)
from models.tasks.feature_task import feature_task
from models.tasks.registry import task_named
from models.vector.schema import RELEASED, Role
from models.vector.seeds import client_seed


@dataclass(frozen=True)
class Fitted:
    """A new client's model, as ``LocalTrainer.evaluate`` takes it.

    ``parameters`` include generated tensors: flat float32 in the layout of
    ``models.plan.plan.download_schema``. ``personal`` is empty where the method keeps nothing.
    """

    parameters: Tensor
    personal: PersonalState


class NewClientFit:
    """A fitter of one new client's model after the other, with one network for all of them."""

    def __init__(
        self,
        plan: Plan,
        hypernetwork: Hypernetwork | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Build the plan's network; the hypernetwork φ is not changed.

        Raises:
            ValueError: If the method generates tensors and there is no hypernetwork.
        """
        self.plan = plan
        self.task = task_named(plan.task)
        self.client = ClientNetwork(plan, torch.device(device))
        self.half = build_client_half(plan.personalisation)
        self.training = msgspec.structs.replace(plan.training, local_epochs=1)
        self.generated = self.client.schema.with_roles(Role.GENERATED)
        self.hypernetwork = hypernetwork
        if self.generated.tensors and hypernetwork is None:
            raise ValueError(
                f'method "{plan.personalisation.method}" generates tensors, and there is no '
                "hypernetwork to make them"
            )

    @property
    def fitted_count(self) -> int:
        """Return how many numbers are fitted to a client."""
        settings, schema = self.plan.personalisation, self.client.schema
        extras = sum(spec.element_count for spec in self.half.extra_tensors(schema))
        personal = self.client.personal.element_count + extras
        if self.hypernetwork is not None:
            return self.hypernetwork.settings.embedding_size + personal
        if personal or isinstance(settings, PFedGpSettings):
            return personal
        return schema.element_count

    def fit(
        self,
        released: Tensor,
        examples: Any,  # of the plan's task; the task checks it
        *,
        client_name: str,
        settings: EmbeddingFitSettings,
        after_epoch: Callable[[int, Fitted], None] | None = None,
    ) -> Tensor | None:
        """Fit one client's model; return its embedding, ``(embedding_size,)``, if it has one.

        Args:
            released: Flat float32 as ``models.plan.plan.released_schema`` says; not changed.
            client_name: The seed of the client's first embedding and of the order of its examples.
            settings: Epochs, and how the embedding starts and steps; the rest steps as in a round.
            after_epoch: Called with the epoch's number, from 0 for the model before any fitting,
                and the model after it; a start is chosen in the first epoch.

        Raises:
            DivergedFitError: If the embedding leaves the finite numbers.
            UnusableExamplesError: If the examples cannot be trained on.
        """
        self.task.check(examples, self.client.network)
        one = _OneFit(self, released, examples, client_name)
        return one.run(settings, after_epoch or (lambda epoch, model: None))


class _OneFit:
    """One client's model while it is fitted."""

    def __init__(
        self, fit: NewClientFit, released: Tensor, examples: Any, client_name: str
    ) -> None:
        self._fit = fit
        self._examples = examples
        self._name = client_name
        self._client = fit.client
        self._optimiser = Optimiser(fit.client.network, fit.client.schema, fit.training)
        self._received = torch.empty(self._client.received.element_count)
        shared = self._client.schema.with_roles(*RELEASED)
        put_part(self._received, self._client.received, shared, released)
        if fit.hypernetwork is not None:
            (first,) = self._starts(fit.hypernetwork, 1)
            self._receive_generated(fit.hypernetwork.generate(first))
        self._client.load(self._received, None)
        personal = self._client.trained_personal()
        model = self._client.loaded(self._received)
        extras = fit.half.first_extras(self._client.schema, model)
        self._personal = PersonalState(
            personal.clone(), {name: value.clone() for name, value in extras.items()}
        )

    def run(
        self, settings: EmbeddingFitSettings, after_epoch: Callable[[int, Fitted], None]
    ) -> Tensor | None:
        """Fit for all epochs, and return the embedding if there is one."""
        after_epoch(0, self._fitted())
        hypernetwork = self._fit.hypernetwork
        if hypernetwork is not None:
            starts = self._starts(hypernetwork, settings.start_count)
            return fit_embedding(
                hypernetwork,
                best_start(hypernetwork, starts, self._loss),
                lambda epoch: self._trainings(epoch, settings.batch_size),
                settings,
                after_epoch=lambda epoch, made: after_epoch(epoch, self._fitted(made)),
            )
        for epoch in range(1, settings.epochs + 1):
            self._epoch(epoch, is_last=epoch == settings.epochs)
            after_epoch(epoch, self._fitted())
        return None

    def _starts(self, hypernetwork: Hypernetwork, count: int) -> list[Tensor]:
        size, seed = hypernetwork.settings.embedding_size, self._fit.plan.seed
        return draw_embeddings(size, count, run_seed=seed, client_name=self._name)

    def _loss(self, generated: Tensor) -> float:
        """Return the mean loss of generated tensors on the client's examples, in nats."""
        self._receive_generated(generated)
        self._client.load(self._received, self._personal.personal)
        network, task = self._client.network, self._fit.task
        return task.evaluate(network, [self._examples], batch_size=EVALUATION_BATCH).mean_log_loss

    def _epoch(self, epoch: int, *, is_last: bool) -> None:
        """Fit what is the client's own by one pass over its examples."""
        match self._fit.plan.personalisation:
            case PFedGpSettings():
                return
            case FedRodSettings():
                self._fit_personal_head(epoch)
            case PFedMeSettings() | DittoSettings():
                self._fit_own_model(epoch)
            case AdaptedSettings() as settings:
                if self._client.personal.tensors:
                    self._fit_tensors(epoch)
                if is_last:
                    self._adapt(AdaptedHalf(settings), epoch)
            case _:
                self._fit_tensors(epoch)

    def _fit_tensors(self, epoch: int) -> None:
        """Train the personal tensors, or all where none is personal."""
        client = self._client
        descent, optimiser = self._descent(epoch)
        descent.run(optimiser, only=client.personal.slices or client.schema.slices)
        if client.personal.tensors:
            # A batch norm that is everyone's has moved its statistics in the network alone.
            self._keep(client.trained_personal(), self._personal.extras)
        else:
            self._received = self._received + client.update(self._received)

    def _fit_personal_head(self, epoch: int) -> None:
        """Train FedRoD's personal head on what the body, left as it is, makes of each batch."""
        descent, _ = self._descent(epoch)
        objective = self._balanced(self._fit.training)
        descent.network.train()
        with torch.no_grad():
            for batch in objective.batches(descent.network, descent.generator):
                objective.loss(descent.network, batch, None)
                objective.step_personal_head()
        self._keep(self._personal.personal, objective.head.extras())

    def _fit_own_model(self, epoch: int) -> None:
        """Train the model of one's own as in a round; pFedMe's starts from the client's copy."""
        descent, optimiser = self._descent(epoch)
        client = self._client
        model = client.loaded(self._received)
        learnt = self._fit.half.train(
            ClientRound(descent, optimiser, client.schema, model, self._personal.extras, epoch)
        )
        self._keep(self._personal.personal, learnt.extras)
        if isinstance(self._fit.plan.personalisation, PFedMeSettings):
            self._received = self._received + client.update(self._received)

    def _adapt(self, half: AdaptedHalf, epoch: int) -> None:
        """Adapt everyone's model, by as many epochs as the method says."""
        client = self._client
        descent, optimiser = self._descent(epoch)
        received = client.loaded(self._received)
        model = ClientRound(
            descent, optimiser, client.schema, received, self._personal.extras, epoch
        )
        self._keep(self._personal.personal, half.adapt(model))

    def _trainings(self, epoch: int, batch_size: int) -> Iterator[LocalTraining]:
        """Yield a training for each batch of one pass over the examples."""
        descent, _ = self._descent(epoch)
        training = msgspec.structs.replace(self._fit.training, batch_size=batch_size)
        objective: LocalObjective = TaskObjective(self._fit.task, self._examples, training)
        if has_balanced_head(self._fit.plan.personalisation):
            objective = self._balanced(training)
        carried = _Carried(objective)
        for batch in objective.batches(descent.network, descent.generator):
            yield partial(self._train_batch, descent, carried, batch)

    def _train_batch(
        self, descent: Descent, carried: "_Carried", batch: Any, generated: Tensor
    ) -> Tensor:
        """Take one step on a batch; keep what is personal, return what is generated's update."""
        client = self._client
        self._receive_generated(generated)
        client.load(self._received, self._personal.personal)
        names = {*self._fit.generated.slices, *client.personal.slices}
        optimiser = Optimiser(client.network, client.schema, self._fit.training)
        carried.batch = batch
        descent.run(optimiser, objective=carried, only=names)
        extras = self._personal.extras
        if isinstance(carried.objective, BalancedSoftmax):
            carried.objective.step_personal_head()
            extras = carried.objective.head.extras()
        self._keep(client.trained_personal(), extras)
        return part_of(client.update(self._received), client.received, self._fit.generated)

    def _descent(self, epoch: int) -> tuple[Descent, Optimiser]:
        """Lay the client's model into the network, and return what trains it for one epoch.

        The network's optimiser persists: with one batch an epoch, Adam would otherwise take only
        first steps, of full size. A model beside the network (Ditto's, pFedMe's) begins its own
        anew.
        """
        fit, client = self._fit, self._client
        client.load(self._received, self._personal.personal)
        dropout = client_seed(fit.plan.seed, epoch, self._name, purpose="fit-dropout")
        use_generator(client.network, torch.Generator(client.device).manual_seed(dropout))
        order = client_seed(fit.plan.seed, epoch, self._name, purpose="fit")
        descent = Descent(
            client.network,
            fit.task,
            self._examples,
            fit.training,
            generator=torch.Generator().manual_seed(order),
            device=client.device,
        )
        return descent, self._optimiser

    def _balanced(self, training: TrainingSettings) -> BalancedSoftmax:
        fit, settings = self._fit, self._fit.plan.personalisation
        rate = getattr(settings, "personal_learning_rate", None)
        return BalancedSoftmax(
            feature_task(fit.task, settings.method),
            self._examples,
            training,
            head=PersonalHead(self._personal.extras, self._client.device),
            learning_rate=training.learning_rate if rate is None else rate,
        )

    def _receive_generated(self, generated: Tensor) -> None:
        put_part(self._received, self._client.received, self._fit.generated, generated)

    def _keep(self, personal: Tensor, extras: Any) -> None:
        self._personal = PersonalState(personal.clone(), extras)

    def _fitted(self, generated: Tensor | None = None) -> Fitted:
        if generated is not None:
            self._receive_generated(generated)
        return Fitted(self._received.clone(), self._personal)


class _Carried:
    """One batch at a time of an objective, with the state that goes from batch to batch."""

    def __init__(self, objective: LocalObjective) -> None:
        self.objective = objective
        self.batch: Any = None
        self._state: Tensor | None = None

    def batches(self, network: Network, generator: torch.Generator) -> Iterator[Any]:
        yield self.batch

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        loss, count, self._state = self.objective.loss(network, batch, self._state)
        return loss, count, None
