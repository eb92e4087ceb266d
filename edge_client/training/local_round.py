"""Train one round on one person's examples, or score a model on them.

Simulation and device share these functions, which touch no socket or file. In float32 with one
thread an operation, the same plan, parameters, examples, round and client name give the same bits,
but for noise, which a device draws from the operating system.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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
from edge_client.training.departure import Departure
from edge_client.training.example_training import ExampleTraining, SecretDraws
from edge_client.training.local_result import LocalResult, RoundLearnt, RoundStart
from edge_client.training.users_scoring import EVALUATION_BATCH
from models.layers.dropout import use_generator
from models.networks.flat_parameters import check_flat
from models.networks.registry import word_network
from models.plan.onlookers import hides_from_coordinator
from models.plan.plan import Plan, TrainingSettings
from models.tasks.keystrokes import KeystrokeCounts, Sentences, keystroke_savings
from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from models.tasks.scoring import chunked_logits
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.vocabulary import Vocabulary
from models.vector.seeds import client_seed
from privacy.clipping.clip import UnusableUpdateError
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys


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
        self._keys = SystemKeys() if keys is None else keys
        self._departure = Departure(plan, self._client.sent, self._keys, seeded=seeded)
        self._hides = hides_from_coordinator(plan)
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

        Where the plan hides the text from the coordinator, nothing that the examples lead to is
        raised: there is an update whatever they are, and ``LocalResult.failure`` says what
        happened. Zeros are then clipped and noised like any update; with ``example_privacy`` no
        example is drawn, and the noise of every step is there all the same.

        Args:
            parameters: Flat float32 as ``models.plan.plan.download_schema`` says; not changed.
            examples: The client's examples; for ``next_word`` an int64 stream, ``(tokens,)``. None
                only where the plan hides them: there are none that can be used.
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
        start = RoundStart(
            parameters, round_number, client_name, optimiser_state, personal, into, clipping_norm
        )
        if not self._hides:
            return self._sent(start, self._learnt(start, examples))
        check_flat(parameters, self._client.received)
        failure: Exception | None = None
        for learn in (partial(self._learnt, start, examples), partial(self._noise_alone, start)):
            try:
                return replace(self._sent(start, learn()), failure=failure)
            # Whatever it is: what follows must not tell which text this was.
            except Exception as error:
                # Its frames hold a model's worth of memory, the network half a step.
                failure = failure or error.with_traceback(None)
                self._network.zero_grad()
        return replace(self._sent(start, self._nothing(start)), failure=failure)

    def first_state(self, parameters: Tensor) -> PersonalState:
        """Return what a client that never trained keeps; ``parameters`` are as in ``train``."""
        self._client.load(parameters, None)
        extras = self._extras(None, self._client.loaded(parameters))
        return PersonalState(self._client.trained_personal().clone(), extras)

    def _learnt(self, start: RoundStart, examples: Any) -> RoundLearnt:
        """Train on a client's examples."""
        if examples is None:
            raise UnusableExamplesError("there are no examples to train on")
        optimiser = self._begun(start)
        if self._by_example is None:
            self._task.check(examples, self._network)
            seed = client_seed(self._plan.seed, start.round_number, start.client_name)
            training = self._plan.training.at_round(start.round_number)
            descent = self._descent(examples, training, seed)
            mean_loss, extras = self._follow_method(descent, optimiser, start)
            count = self._task.example_count(examples)
        else:
            # Without a check of all of it: one sentence must not decide whether others count.
            draws = SecretDraws(
                self._keys, f"round {start.round_number} client {start.client_name}"
            )
            mean_loss, extras = self._by_example.descend(optimiser, examples, draws), {}
            count = self._by_example.example_count
        keeps_state = self._plan.training.optimiser_state == "kept"
        state = optimiser.state() if keeps_state else None
        if self._hides and not all(bool(part.isfinite().all()) for part in (state or {}).values()):
            raise UnusableUpdateError("training left NaN in the optimiser's state")
        kept = self._kept(extras)
        return RoundLearnt(self._client.update(start.parameters), count, mean_loss, state, kept)

    def _noise_alone(self, start: RoundStart) -> RoundLearnt:
        """Take the steps of example-level privacy without an example."""
        if self._by_example is None:
            raise UnusableExamplesError("only example_privacy has noise without an example")
        return self._learnt(replace(start, optimiser_state=None), torch.empty(0, dtype=torch.int64))

    def _nothing(self, start: RoundStart) -> RoundLearnt:
        """Return an update of zeros, and the client's state as it was; what was lost is let go."""
        self._client.load(start.parameters, start.own)
        extras = self._extras(start.personal, self._client.loaded(start.parameters))
        kept = self._kept(extras)
        count = 0 if self._by_example is None else self._by_example.example_count
        zeros = self._client.update(start.parameters)
        return RoundLearnt(zeros, count, math.nan, None, kept, feeds_back=False)

    def _begun(self, start: RoundStart) -> Optimiser:
        """Lay a client's model and draws into the network, and return its optimiser."""
        self._client.load(start.parameters, start.own, start.into)
        self._client.train_layers_of(start.round_number)
        dropout_seed = client_seed(
            self._plan.seed, start.round_number, start.client_name, purpose="dropout"
        )
        use_generator(self._network, torch.Generator(device=self._device).manual_seed(dropout_seed))
        # The client's own optimiser state goes on, if the plan keeps it.
        training = self._plan.training.at_round(start.round_number)
        optimiser = self._optimiser.fresh(training)
        if training.optimiser_state == "kept" and start.optimiser_state is not None:
            optimiser.load_state(start.optimiser_state)
        return optimiser

    def _sent(self, start: RoundStart, learnt: RoundLearnt) -> LocalResult:
        """Return what was learnt in the form in which it leaves the device, clipped."""
        outgoing = self._departure.outgoing(
            learnt.update,
            round_number=start.round_number,
            client_name=start.client_name,
            example_count=learnt.example_count,
            clipping_norm=start.clipping_norm,
            residual=start.residual if learnt.feeds_back else None,
        )
        kept = learnt.kept
        return LocalResult(
            update=outgoing.update,
            update_norm=outgoing.norm,
            example_count=learnt.example_count,
            mean_loss=learnt.mean_loss,
            optimiser_state=learnt.optimiser_state,
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
        self, descent: Descent, optimiser: Optimiser, start: RoundStart
    ) -> tuple[float, Mapping[str, Tensor]]:
        """Train as the personalisation method does; return the mean loss and what it keeps."""
        model = self._client.loaded(start.parameters)
        beside = self._extras(start.personal, model)
        return self._half.train(
            ClientRound(descent, optimiser, self._client.schema, model, beside, start.round_number)
        )

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
