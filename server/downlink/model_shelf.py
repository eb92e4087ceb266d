"""Hold the current model: load it, seal it for devices, put the next one in its place.

A release is written in an order that no crash can break: files first, then one transaction. Only
then does the model leave. Clearing up follows during the next round, or at the next start.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from models.networks.grown_layers import grow
from models.plan.plan import Plan, PlanKind, released_schema
from models.plan.release_record import Metric
from models.plan.signed_plan import sign_plan
from models.plan.stages import describe_stage, next_stage
from models.text.vocabulary import Vocabulary
from models.vector.codec import Payload, encode
from models.vector.schema import RELEASED, Schema
from privacy.identities.certificates import Certificates
from privacy.identities.party import Identity
from server.config.federation import FederationConfig
from server.downlink.attempt_in_hand import RoundInHand
from server.downlink.release_writer import Model, ReleaseWriter, clipping_norm_after
from server.downlink.round_plan import round_plan
from server.downlink.sealed_model import ModelSealer, SealedModel
from server.records.patience import until_possible
from server.releases.files import NewRelease, parameters_digest
from server.releases.judge import Judge, in_words
from server.releases.method_state import MethodState, method_state_of
from server.releases.public_evaluation import PublicText
from server.releases.publishing import (
    NO_PREVIOUS,
    add_metrics,
    last_release,
    list_releases,
    publish_release,
    record_release,
    release_round,
)
from server.releases.starting_model import starting_method, starting_parameters
from server.releases.storage import Storage

_LOG = logging.getLogger(__name__)
_OWN_COPY = (
    "copy the release's vocabulary.txt and name the copy as [vocabulary] path, with languages = "
    '["en"] if it was sotto\'s'
)


class ModelShelf:
    """The current model of one federation, as devices fetch it under its ``travel`` settings."""

    def __init__(
        self,
        config: FederationConfig,
        run: str,
        vocabulary: Vocabulary | None,
        *,
        storage: Storage,
        identity: Identity,
        method: MethodState,
        public_text: PublicText | None,
        on_stage: Callable[[Plan], None],
    ) -> None:
        """Serve one federation; call ``load`` before anything else.

        ``run`` is 32 hex digits. ``public_text`` is the text that models are evaluated on, if any.
        ``on_stage`` is called with a plan of each stage that the model comes to.
        """
        self.guarantee = config.privacy.guarantee
        self.travel = config.travel
        self.has_words = config.vocabulary is not None
        self._config = config
        self._run = run
        self._vocabulary = vocabulary
        self._store, self._releases = storage.store, storage.releases
        self._metrics, self._threads = storage.metrics, storage.threads
        self._failpoints = storage.failpoints
        self._identity = identity
        self._method = method
        self._on_stage = on_stage
        self._judge = Judge(config, public_text)
        self._model: Model | None = None
        self._sealing: asyncio.Task[SealedModel] | None = None
        self._writer = ReleaseWriter(config, run, storage)
        self._sealer = ModelSealer(bytes.fromhex(run), config.compression)
        self._behind: asyncio.Task[None] | None = None

    @property
    def current(self) -> Model:
        """Return the model that the next round starts from.

        Raises:
            RuntimeError: Before ``load``.
        """
        if self._model is None:
            raise RuntimeError("the model must be loaded first")
        return self._model

    @property
    def has_converged(self) -> bool:
        """Return whether the run has met its convergence criterion."""
        return self._judge.has_converged

    def load(self) -> None:
        """Load the newest release, or make the first one; blocks.

        Raises:
            ReleaseError: If its files are gone or damaged, or its word list is another one.
            MethodStateError: If its personalisation state is not one of the settings' method.
            OSError: If the disk is full.
        """
        last = last_release(self._store)
        if last is None:
            self._model = self._release_initial()
            return
        stored = self._releases.read(last.round_number)
        stored.check_words(self._vocabulary, instead=_OWN_COPY)
        stage = stored.plan.growth_stage
        if stage is not None:
            self._method.begin_at(method_state_of(self._config, stage))
            self._on_stage(stored.plan)
        self._method.restore(stored.personalisation)
        sha256 = last.parameters_sha256
        self._model = Model(
            last.round_number,
            torch.tensor(stored.parameters),
            sha256,
            sha256,
            stage,
            clipping_norm_after(last.metrics),
        )
        self._sealer.remember_kept(self._releases, last.round_number)
        released = list_releases(self._store)
        for release in released:
            self._judge.observe(release.round_number, release.metrics)
        self._judge.point_to_best(self._releases)
        self._metrics.complete(released)

    def take_identity(self, identity: Identity) -> None:
        """Sign with renewed keys from now on; between rounds only."""
        self._identity = identity
        self._sealing = None

    @property
    def signer(self) -> Certificates:
        """Return the certificates of whoever signs the current model."""
        return self._identity.certificates

    async def signed(self, plan: Plan, round_number: int, attempt: int) -> bytes:
        """Return the signature of an attempt's plan, which every lease of it carries."""
        told, signer = plan.encode(), self._identity
        sign = partial(sign_plan, told, signer, run=self._run)
        return await self._threads.run(lambda: sign(round_number=round_number, attempt=attempt))

    async def sealed(self) -> SealedModel:
        """Return the current model as devices get it."""
        if self._sealing is None:
            model = self.current
            self._sealing = asyncio.create_task(
                self._threads.run(lambda: self._seal(model, self._encode(model.parameters)))
            )
        return await self._sealing

    async def grow(self, round_number: int) -> None:
        """Give the current model the layers, if any, that a round about to be opened starts with.

        They follow from the settings alone, so a restart comes to the same ones.

        Raises:
            ValueError: If the round is of an earlier stage than the model.
        """
        plan = next_stage(self.plan(None), round_number)
        while plan is not None:
            await self._threads.run(partial(self._grow_to, plan))
            self._sealing = None
            _LOG.info("round %s starts with a grown model, %s", round_number, self.growth)
            plan = next_stage(plan, round_number)

    def _grow_to(self, plan: Plan) -> None:
        model = self.current
        parameters = grow(model.parameters, self.plan(None), plan, released_schema)
        self._method.grow(plan)
        self._on_stage(plan)
        self._model = dataclasses.replace(
            model,
            parameters=parameters,
            sha256=parameters_digest(parameters.numpy()),
            growth_stage=plan.growth_stage,
        )

    @property
    def growth(self) -> str:
        """Return the stage of the current model in words; empty where it does not grow."""
        growth, stage = self._config.growth, self.current.growth_stage
        return "" if growth is None or stage is None else describe_stage(growth, stage)

    def plan(self, members: Sequence[str] | None, kind: PlanKind = "train") -> Plan:
        """Return the plan of a round for its cohort; ``members`` is None for ``first-come``."""
        model = self._model
        return round_plan(
            self._config,
            self._run,
            self._vocabulary,
            members,
            kind=kind,
            clipping_norm=None if model is None else model.clipping_norm,
            growth_stage=None if model is None else model.growth_stage,
        )

    async def release(
        self,
        parameters: Tensor,
        in_hand: RoundInHand,
        figures: Mapping[str, Metric],
        clear_up: Callable[[], None],
    ) -> None:
        """Put a round's outcome, flat float32, shape ``(elements,)``, in the current model's place.

        Figures of an evaluation are added. ``clear_up`` runs during the next round. A full disk or
        a lack of descriptors is waited out; until then the current model stays.
        """
        step, run = f"the release of round {in_hand.round_number}", self._threads.run
        new = await until_possible(
            step,
            # The very plan that devices were told, so that its digest is the one that they signed.
            lambda: run(
                lambda: self._new_release(
                    in_hand.round_number, in_hand.attempt, in_hand.plan, parameters, figures
                )
            ),
        )
        # The noise in it is drawn: what is repeated is the writing, never the draw.
        written = await until_possible(
            step,
            lambda: self._writer.write(new, in_hand.plan.privacy, self._identity, self._seal),
        )
        await self.finish()

        def record() -> float:
            return record_release(
                self._store,
                written.new,
                written.record,
                opened_at=in_hand.opened_at,
                now=time.time(),
                failpoints=self._failpoints,
            )

        duration_s = await until_possible(step, lambda: run(record))
        self._model, self._sealing = written.model, written.sealing
        number, metrics = new.round_number, new.metrics
        _LOG.info("round %s released in %.1f s: %s", number, duration_s, in_words(metrics))
        is_best = self._judge.observe(number, metrics)
        first_kept = number + 1 - self._config.store.keep_releases

        def follow_up() -> None:
            publish_release(
                self._store,
                self._releases,
                number,
                now=time.time(),
                best_round=number if is_best and self._config.evaluation.keep_best else None,
                keep=range(first_kept, number + 1),
                failpoints=self._failpoints,
            )
            clear_up()
            self._metrics.write(list_releases(self._store, number))

        what = f"what follows the release of round {number}"
        self._behind = asyncio.create_task(until_possible(what, lambda: run(follow_up)))

    async def observe(self, round_number: int, figures: Mapping[str, Metric]) -> None:
        """Record the figures that devices found for the model of a round, if any."""
        if not figures:
            return
        await self.finish()
        await until_possible(
            f"the figures of round {round_number}",
            lambda: self._threads.run(
                lambda: add_metrics(self._store, round_number, dict(figures))
            ),
        )
        if self._judge.observe(round_number, figures) and self._config.evaluation.keep_best:
            await self._threads.run(lambda: self._releases.point("best", round_number))
        _LOG.info("round %s on devices: %s", round_number, in_words(figures))

    async def finish(self) -> None:
        """Wait for the work behind the last round."""
        if self._behind is not None:
            await self._behind

    def _release_initial(self) -> Model:
        parameters = starting_parameters(self._config, self.plan(None))
        if self._config.start_from is not None:
            self._method.begin_at(starting_method(self._config, self.plan(None)))
        new = self._new_release(0, 0, self.plan(None), parameters, {})
        now = time.time()
        record = release_round(
            self._store, self._releases, new, self._identity, opened_at=now, now=now
        )
        sha256 = bytes.fromhex(record.parameters_sha256)
        return Model(0, parameters, sha256, sha256, new.plan.growth_stage)

    def _encode(self, parameters: Tensor) -> Payload:
        return encode(self._released, parameters.numpy())

    @property
    def _released(self) -> Schema:
        return self._config.schema_at(self.current.growth_stage).with_roles(*RELEASED)

    def _seal(self, model: Model, payload: Payload) -> SealedModel:
        released = self._released
        flat = model.parameters.numpy()
        sealed = self._sealer.seal(
            released,
            flat,
            payload,
            round_number=model.round_number + 1,
            base_sha256=model.sha256,
            sender=self._identity,
        )
        self._sealer.remember(released, flat, model.sha256)
        return sealed

    def _new_release(
        self,
        round_number: int,
        attempt: int,
        plan: Plan,
        parameters: Tensor,
        figures: Mapping[str, Metric],
    ) -> NewRelease:
        return NewRelease(
            round_number=round_number,
            attempt=attempt,
            plan=plan,
            vocabulary=self._vocabulary,
            parameters=parameters.numpy(),
            previous_sha256=NO_PREVIOUS if self._model is None else self._model.released_sha256,
            metrics={**figures, **self._judge.evaluate(round_number, self.plan(None), parameters)},
            guarantee=self.guarantee,
            personalisation=self._method.encoded(),
        )
