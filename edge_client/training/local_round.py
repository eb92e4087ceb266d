"""Train one round on one person's examples, or score a model on them.

Simulation and device share these functions, which touch no socket or file. In float32 with one
thread an operation, the same plan, parameters, examples, round and client name give the same bits,
but for noise, which a device draws from the operating system.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edge_client.descent.descent import Descent
from edge_client.descent.optimisers import Optimiser, OptimiserState
from edge_client.personalisation.grown_state import kept_layout
from edge_client.personalisation.method import ClientRound, ClientScoring, ScoresWords
from edge_client.personalisation.registry import build_client_half
from edge_client.personalisation.state import PersonalState
from edge_client.training.client_network import ClientNetwork
from edge_client.training.example_training import ExampleTraining, SecretDraws
from edge_client.training.outgoing import outgoing_update
from models.compression.update_format import update_formats
from models.layers.dropout import use_generator
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, word_network
from models.plan.plan import Plan, TrainingSettings, plan_schema
from models.tasks.keystrokes import KeystrokeCounts, Sentences, keystroke_savings
from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from models.tasks.scoring import chunked_logits
from models.text.vocabulary import Vocabulary
from models.vector.seeds import client_seed
from privacy.clipping.clip import UnusableUpdateError
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys

EVALUATION_BATCH = 64


@dataclass(frozen=True)
class LocalResult:
    """The outcome of one client's round; ``update_norm`` and ``mean_loss`` are never sent.

    Attributes:
        update: The update as it arrives: trained minus received parameters, clipped, with the
            mode's client half applied, and rounded where the plan compresses it; flat float32 in
            the layout of ``models.plan.plan.upload_schema``.
        update_norm: L2 norm before clipping and noise.
        example_count: Target tokens in one pass over the client's examples, whatever
            ``local_epochs`` says; with ``example_privacy`` the same for every client. A sender that
            tells it, or weighs by it, keeps to the plan's ``example_cap``.
        mean_loss: Mean of the local objective over every target of every pass, in nats, measured
            while training. NaN where ``example_privacy`` drew no example.
        optimiser_state: For the client's next round where the plan keeps it, else None.
        personal: The state that the client keeps until its next round; None if there is none.
        payload: The payload that travels; None where that is ``update`` as it is.
    """

    update: Tensor
    update_norm: float
    example_count: int
    mean_loss: float
    optimiser_state: OptimiserState | None
    personal: PersonalState | None = None
    payload: memoryview | None = None


class LocalTrainer:
    """A trainer of client after client on one device, with one network for all of them.

    A client leaves nothing behind for the next: parameters, state and draws are set anew.
    """

    def __init__(
        self,
        plan: Plan,
        device: torch.device | str = "cpu",
        *,
        keys: NoiseKeys | None = None,
        seeded: bool = False,
    ) -> None:
        """Build the plan's network; only tests give ``keys`` of secret draws.

        ``seeded`` is as in ``outgoing_update``: a simulation repeats its uncalibrated noise.

        Raises:
            ValueError: If the plan's task is unknown, or its model lacks a part for its method.
        """
        self._plan = plan
        self._device = torch.device(device)
        self._task = task_named(plan.task)
        self._client = ClientNetwork(plan, self._device)
        self._network = self._client.network
        self._optimiser = Optimiser(self._network, self._client.schema, plan.training)
        self._half = build_client_half(plan.personalisation)
        schema = self._client.schema
        self.layout = kept_layout(plan, self._half)
        self._travels_as = update_formats(plan)
        self._tensors = list(self._client.sent.slices.values())
        self._seeded = seeded
        self._keys = SystemKeys() if keys is None else keys
        privacy = plan.training.example_privacy
        self._by_example = (
            None
            if privacy is None
            else ExampleTraining(word_network(self._network), schema, plan.training, privacy)
        )

    def train(
        self,
        parameters: Tensor,
        examples: Any,  # of the plan's task; the task checks it
        *,
        round_number: int,
        client_name: str,
        optimiser_state: OptimiserState | None = None,
        personal: PersonalState | None = None,
        into: Tensor | None = None,
        clipping_norm: float | None = None,
    ) -> LocalResult:
        """Train one client's round.

        Args:
            parameters: Flat float32 as ``models.plan.plan.download_schema`` says; not changed.
            examples: The client's examples; for ``next_word`` an int64 stream, ``(tokens,)``.
            round_number: Round, from 1.
            optimiser_state: That of this client's last round; read only where the plan keeps it.
            personal: The state of this client's last round; None before its first.
            into: Memory that the update may be written to, in the layout of
                ``models.plan.plan.upload_schema``; the result says where it lies.
            clipping_norm: This round's, if it changes from round to round; else the plan's.

        Raises:
            UnusableExamplesError: If the examples cannot be trained on.
            UnusableUpdateError: If training ended in NaN or infinity.
            ValueError: If parameters or states do not fit the plan's model.
        """
        self._client.load(parameters, None if personal is None else personal.personal, into)
        self._client.train_layers_of(round_number)
        self._task.check(examples, self._network)
        seed = client_seed(self._plan.seed, round_number, client_name)
        dropout_seed = client_seed(self._plan.seed, round_number, client_name, purpose="dropout")
        use_generator(self._network, torch.Generator(device=self._device).manual_seed(dropout_seed))
        # The client's own optimiser state goes on, if the plan keeps it.
        training = self._plan.training.at_round(round_number)
        keeps_state = training.optimiser_state == "kept"
        optimiser = self._optimiser.fresh(training)
        if keeps_state and optimiser_state is not None:
            optimiser.load_state(optimiser_state)

        if self._by_example is None:
            descent = self._descent(examples, training, seed)
            mean_loss, extras = self._follow_method(descent, optimiser, parameters, personal)
            example_count = self._task.example_count(examples)
        else:
            draws = SecretDraws(self._keys, f"round {round_number} client {client_name}")
            mean_loss, extras = self._by_example.descend(optimiser, examples, draws), {}
            example_count = self._by_example.example_count

        # The update, clipped and in the form in which it leaves the device.
        kept = self._kept(extras)
        outgoing = outgoing_update(
            self._plan,
            self._client.update(parameters),
            self._tensors,
            self._travels_as.of_round(round_number),
            round_number=round_number,
            client_name=client_name,
            clipping_norm=clipping_norm,
            residual=None if personal is None else personal.residual,
            seeded=self._seeded,
        )
        return LocalResult(
            update=outgoing.update,
            update_norm=outgoing.norm,
            example_count=example_count,
            mean_loss=mean_loss,
            optimiser_state=optimiser.state() if keeps_state else None,
            personal=None if kept is None else replace(kept, residual=outgoing.residual),
            payload=outgoing.payload,
        )

    def _descent(self, examples: Any, training: TrainingSettings, seed: int) -> Descent:
        """Return the steps over a client's examples, in an order that the seed decides."""
        return Descent(
            self._network,
            self._task,
            examples,
            training,
            generator=torch.Generator().manual_seed(seed),
            device=self._device,
        )

    def _follow_method(
        self,
        descent: Descent,
        optimiser: Optimiser,
        parameters: Tensor,
        personal: PersonalState | None,
    ) -> tuple[float, Mapping[str, Tensor]]:
        """Train as the personalisation method does; return the mean loss and what it keeps."""
        model = self._client.loaded(parameters)
        beside = self._extras(personal, model)
        return self._half.train(ClientRound(descent, optimiser, self._client.schema, model, beside))

    def evaluate(
        self,
        parameters: Tensor,
        examples: Any,  # of the plan's task; the task checks it
        *,
        client_name: str,
        training_examples: Any = None,  # of the plan's task
        personal: PersonalState | None = None,
        batch_size: int = EVALUATION_BATCH,
    ) -> Counts:
        """Score one client's own model on its own held-out examples, in float32.

        Parameters and ``personal`` are as in ``train``; ``batch_size`` changes the speed alone.

        Raises:
            UnusableExamplesError: If the examples are not the network's.
            ValueError: If parameters or state do not fit the plan's model.
        """
        return self._half.evaluate(
            self._scoring(
                parameters,
                examples,
                client_name=client_name,
                training_examples=training_examples,
                personal=personal,
                batch_size=batch_size,
            )
        )

    @torch.no_grad()
    def type_text(
        self,
        parameters: Tensor,
        sentences: Sentences,
        vocabulary: Vocabulary,
        *,
        client_name: str,
        training_examples: Any = None,  # of the plan's task
        personal: PersonalState | None = None,
    ) -> KeystrokeCounts:
        """Count the keys that one client's own model would have saved it on its own text, in words.

        The other arguments are as in ``evaluate``; the vocabulary is that of the model's rows.

        Raises:
            ValueError: If parameters, state or vocabulary do not fit the plan's model.
            WrongFamilyError: If the model does not predict words.
        """
        scoring = self._scoring(
            parameters,
            None,
            client_name=client_name,
            training_examples=training_examples,
            personal=personal,
        )
        half = self._half
        scores = half.word_scores(scoring) if isinstance(half, ScoresWords) else chunked_logits
        return keystroke_savings(
            word_network(self._network), vocabulary, [sentences], scores=scores
        )

    def _scoring(
        self,
        parameters: Tensor,
        examples: Any,  # of the plan's task
        *,
        client_name: str,
        training_examples: Any,
        personal: PersonalState | None,
        batch_size: int = EVALUATION_BATCH,
    ) -> ClientScoring:
        """Lay a client's model into the network, and return all that scoring it needs."""
        self._client.load(parameters, None if personal is None else personal.personal)
        # The same draws whatever the round: two scores of one model are one figure.
        seed = client_seed(self._plan.seed, 1, client_name, purpose="prediction")
        return ClientScoring(
            network=self._network,
            task=self._task,
            schema=self._client.schema,
            extras=self._extras(personal, self._client.loaded(parameters)),
            examples=examples,
            training_examples=training_examples,
            training=self._plan.training,
            generator=torch.Generator().manual_seed(seed),
            batch_size=batch_size,
            device=self._device,
        )

    def _extras(self, personal: PersonalState | None, model: Tensor) -> Mapping[str, Tensor]:
        """Return what the client kept beside the model, or what it is taken to have kept."""
        if personal is None:
            return self._half.first_extras(self._client.schema, model)
        if set(personal.extras) != set(self.layout.extras.slices):
            raise ValueError(
                f"personal state must hold {sorted(self.layout.extras.slices)} beside the model, "
                f"got {sorted(personal.extras)}"
            )
        return personal.extras

    def _kept(self, extras: Mapping[str, Tensor]) -> PersonalState | None:
        """Return what the client keeps after training."""
        if self.layout.is_empty:
            return None
        kept = PersonalState(self._client.trained_personal(), extras)
        if not all(bool(part.isfinite().all()) for part in (kept.personal, *extras.values())):
            raise UnusableUpdateError("personal tensors must be finite, training left NaN in them")
        return kept


def evaluate_users(
    plan: Plan,
    parameters: Tensor,
    users: Sequence[Any],  # of the plan's task
    *,
    device: torch.device | str = "cpu",
    batch_size: int = EVALUATION_BATCH,
) -> Counts:
    """Score flat float32 parameters on many people's held-out examples, each apart from the others.

    The ``batch_size``, texts read side by side, changes the speed alone.

    Raises:
        ValueError: If something does not fit the plan.
    """
    network = build_network(plan.model, device)
    load_parameters(network, plan_schema(plan), parameters)
    return task_named(plan.task).evaluate(network, users, batch_size=batch_size)
