"""Make what rounds leave behind, and find it again after a restart.

The keeper holds the current model and its sealed form. At the close the updates are summed
(`server.round_sum`) and the result is released: files first, then one transaction. Only then does
the model leave, as the next round's downlink, which was sealed while the files were flushed.
Naming the files, figures and clearing up follow behind the next round's back; after a crash the
next start does them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from models.codec import encode
from models.metrics import Counts
from models.model_settings import schema_of
from models.parameters import initial_parameters
from models.plan import Plan
from models.release_record import Metric
from models.vocabulary import Vocabulary
from privacy.identity import Identity
from privacy.noise import noise_mode
from server.attempts import OpenAttempt, abort_attempt, open_attempt
from server.config import FederationConfig, make_plan
from server.convergence import ConvergenceTracker
from server.downlink import Downlink
from server.failpoints import Failpoint, Failpoints
from server.inbox import Inbox
from server.metrics_log import MetricsLog
from server.public_evaluation import PublicText
from server.recovery import Recovered, recover
from server.release_files import NewRelease, ReleaseFolder, parameters_digest
from server.releases import (
    NO_PREVIOUS,
    ReleaseSummary,
    add_metrics,
    last_release,
    list_releases,
    publish_release,
    record_release,
    release_round,
)
from server.round_answers import Abort, Close
from server.round_in_hand import RoundInHand
from server.round_sum import RoundSum
from server.rounds import RoundMachine
from server.store import Store

_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")
PlanKind = Literal["train", "evaluate"]


@dataclass(frozen=True)
class _Model:
    """Hold the parameters that the next round starts from.

    Attributes:
        round_number: Round that ended in them; 0 for the initial ones.
        parameters: Flat float32, shape ``(elements,)``.
        sha256: Their digest, 32 bytes.
    """

    round_number: int
    parameters: Tensor
    sha256: bytes


class RoundKeeper:
    """Open, close, abort and remember rounds.

    Attributes:
        guarantee: What the noise mode promises, in words.
        has_converged: Whether the run has met its convergence criterion.
    """

    def __init__(
        self,
        config: FederationConfig,
        run: str,
        vocabulary: Vocabulary,
        *,
        store: Store,
        inbox: Inbox,
        releases: ReleaseFolder,
        metrics: MetricsLog,
        round_sum: RoundSum,
        identity: Identity,
        public_text: PublicText | None,
        executor: Executor,
        failpoints: Failpoints,
    ) -> None:
        """Serve one federation; call ``start`` before anything else.

        Args:
            config: The federation.
            run: Identifier of the run, 32 hex digits.
            vocabulary: Its words.
            store: Remembers attempts and releases.
            inbox: Holds sealed updates.
            releases: Holds models.
            metrics: Takes each round's figures.
            round_sum: Sums a round's updates.
            identity: Signs models and releases.
            public_text: What models are evaluated on; None for nothing.
            executor: Threads for everything that takes time.
            failpoints: Armed in tests only.
        """
        self.guarantee = noise_mode(config.privacy).guarantee
        self.has_converged = False
        self._config = config
        self._run = run
        self._vocabulary = vocabulary
        self._store = store
        self._inbox = inbox
        self._releases = releases
        self._metrics = metrics
        self._round_sum = round_sum
        self._identity = identity
        self._public_text = public_text
        self._executor = executor
        self._failpoints = failpoints
        self._tracker = ConvergenceTracker(config.convergence)
        self._model: _Model | None = None
        self._sealing: asyncio.Task[Downlink] | None = None
        self._behind: asyncio.Task[None] | None = None

    async def start(self) -> Recovered:
        """Repair what a crash left, load the current model, and say where the run goes on.

        Raises:
            ReleaseError: If the files of a release are gone or damaged.
            OSError: If the disk is full.
        """
        return await self._in_thread(self._recover)

    def _recover(self) -> Recovered:
        recovered = recover(self._store, self._inbox, self._releases, now=time.time())
        last = last_release(self._store)
        if last is None:
            self._model = self._release_initial()
            return Recovered(1, 0, None, ())
        stored = self._releases.read(last.round_number)
        parameters = torch.tensor(stored.parameters)
        self._model = _Model(last.round_number, parameters, last.parameters_sha256)
        for release in list_releases(self._store):
            self._observe(release.round_number, release.metrics.get("perplexity"))
        return recovered

    def _release_initial(self) -> _Model:
        parameters = initial_parameters(self._config.model, self._config.seed)
        new = self._new_release(0, 0, parameters, NO_PREVIOUS, self._evaluate(0, parameters))
        now = time.time()
        record = release_round(
            self._store, self._releases, new, self._identity, opened_at=now, now=now
        )
        return _Model(0, parameters, bytes.fromhex(record.parameters_sha256))

    async def take_up(self, machine: RoundMachine, recovered: Recovered) -> RoundInHand | None:
        """Put the machine into the round that an earlier process had opened, if there is one."""
        opened = recovered.open_attempt
        if opened is None:
            return None
        left_s = opened.deadline_ms / 1000 - time.time()
        machine.restore(opened.members, recovered.receipts, time.monotonic() + left_s)
        return await self._in_hand(opened)

    async def open(
        self, round_number: int, attempt: int, members: Sequence[str] | None, remaining_s: float
    ) -> RoundInHand:
        """Record an attempt and return it with its sealed model.

        Args:
            round_number: Round, from 1.
            attempt: Attempt, from 0.
            members: The cohort, or None for ``first-come``.
            remaining_s: Seconds until it closes.
        """
        now = time.time()
        opened = OpenAttempt(
            round_number=round_number,
            attempt=attempt,
            members=None if members is None else tuple(members),
            base_sha256=self._current.sha256,
            opened_at=now,
            deadline_ms=round((now + remaining_s) * 1000),
        )
        await self._in_thread(lambda: open_attempt(self._store, opened))
        return await self._in_hand(opened)

    async def close(
        self, order: Close, in_hand: RoundInHand, plan_refusals: dict[str, int]
    ) -> bool:
        """Sum a round and release its model; return whether it could be done.

        Args:
            order: What the machine closes.
            in_hand: The round as its devices saw it.
            plan_refusals: How often devices refused its plan, by code.

        Raises:
            OSError: If the disk is full: nothing is lost, the next start closes the round again.
        """
        self._failpoints.reach(Failpoint.CLOSING)
        base, started = self._current, time.monotonic()
        try:
            closed = await self._in_thread(
                lambda: self._round_sum.close(order, in_hand, base.parameters)
            )
        except ValueError as error:
            _LOG.error("round %s cannot be closed: %s", order.round_number, error)
            return False
        if closed is None:
            return False
        figures: dict[str, Metric] = {
            "contributions": closed.contribution_count,
            "clipped": closed.clipped_count,
            "closing_s": time.monotonic() - started,
            **{f"refused_{code}": count for code, count in plan_refusals.items()},
            **await self._in_thread(lambda: self._evaluate(order.round_number, closed.parameters)),
        }
        new = self._new_release(
            order.round_number, order.attempt, closed.parameters, base.sha256, figures
        )
        await self._release(new, closed.parameters, in_hand)
        return True

    async def evaluation_in_hand(self) -> RoundInHand:
        """Return the current model with a plan of kind ``evaluate``, for devices to measure."""
        now, model = time.time(), self._current
        opened = OpenAttempt(
            round_number=model.round_number + 1,
            attempt=0,
            members=None,
            base_sha256=model.sha256,
            opened_at=now,
            deadline_ms=round((now + self._config.evaluation.deadline_s) * 1000),
        )
        return await self._in_hand(opened, kind="evaluate")

    async def observe(self, round_number: int, counts: Counts) -> None:
        """Record what devices counted on the model of a round."""
        figures = _figures(counts)
        await self.finish()
        await self._in_thread(lambda: add_metrics(self._store, round_number, figures))
        is_best = self._observe(round_number, figures["perplexity"])
        if is_best and self._config.evaluation.keep_best:
            await self._in_thread(lambda: self._releases.point("best", round_number))
        _LOG.info("round %s: perplexity %.2f on devices", round_number, counts.perplexity)

    async def abort(self, order: Abort) -> None:
        """Record that an attempt ended without a model; its updates are deleted."""
        number, attempt = order.round_number, order.attempt
        await self._in_thread(
            lambda: abort_attempt(self._store, number, attempt, order.reason, now=time.time())
        )
        await self._in_thread(lambda: self._inbox.clear(number, attempt))

    async def summaries(self, first_round: int) -> list[ReleaseSummary]:
        """List the released rounds from one on, oldest first."""
        return await self._in_thread(lambda: list_releases(self._store, max(1, first_round)))

    async def finish(self) -> None:
        """Wait for what follows behind the last round."""
        if self._behind is not None:
            await self._behind

    @property
    def _current(self) -> _Model:
        if self._model is None:
            raise RuntimeError("the keeper must be started first")
        return self._model

    async def _release(self, new: NewRelease, parameters: Tensor, in_hand: RoundInHand) -> None:
        sha256 = await self._in_thread(lambda: parameters_digest(new.parameters))
        model = _Model(new.round_number, parameters, sha256)
        sealing = asyncio.create_task(self._in_thread(lambda: self._seal(model)))
        record = await self._in_thread(
            lambda: self._releases.build(new, self._identity, sha256=sha256)
        )
        self._failpoints.reach(Failpoint.NOISED)
        await self.finish()
        opened_at = in_hand.opened_at
        await self._in_thread(
            lambda: record_release(self._store, new, record, opened_at=opened_at, now=time.time())
        )
        self._failpoints.reach(Failpoint.RELEASE_RECORDED)
        self._model, self._sealing = model, sealing
        _LOG.info(
            "round %s released: %s updates, %.1f s%s",
            new.round_number,
            new.metrics["contributions"],
            time.time() - opened_at,
            _perplexity_text(new.metrics),
        )
        is_best = self._observe(new.round_number, new.metrics.get("perplexity"))
        self._behind = asyncio.create_task(
            self._in_thread(lambda: self._follow_up(new, sha256, opened_at, is_best=is_best))
        )

    def _follow_up(
        self, new: NewRelease, sha256: bytes, opened_at: float, *, is_best: bool
    ) -> None:
        number = new.round_number
        publish_release(self._store, self._releases, number, now=time.time())
        self._failpoints.reach(Failpoint.PUBLISHED)
        if is_best and self._config.evaluation.keep_best:
            self._releases.point("best", number)
        kept = self._config.store.keep_releases
        self._releases.prune(range(number - kept + 1, number + 1))
        self._inbox.clear(number, new.attempt)
        self._metrics.write(
            {
                "round": number,
                "attempt": new.attempt,
                "model_sha256": sha256.hex(),
                "duration_s": time.time() - opened_at,
                **new.metrics,
            }
        )

    def _observe(self, round_number: int, perplexity: Metric) -> bool:
        """Take in an evaluation, if there was one; return whether it is the best so far."""
        if not isinstance(perplexity, float | int):
            return False
        verdict = self._tracker.observe(round_number, perplexity)
        self.has_converged = verdict.has_converged
        return verdict.is_best

    def _evaluate(self, round_number: int, parameters: Tensor) -> dict[str, Metric]:
        if self._public_text is None or not self._config.evaluation.is_due(round_number):
            return {}
        return _figures(self._public_text.score(self._plan(None), parameters))

    async def _in_hand(self, opened: OpenAttempt, kind: PlanKind = "train") -> RoundInHand:
        if self._sealing is None:
            model = self._current
            self._sealing = asyncio.create_task(self._in_thread(lambda: self._seal(model)))
        return RoundInHand(
            plan=self._plan(opened.members, kind),
            round_number=opened.round_number,
            attempt=opened.attempt,
            base_sha256=opened.base_sha256,
            opened_at=opened.opened_at,
            deadline_ms=opened.deadline_ms,
            downlink=await self._sealing,
        )

    def _seal(self, model: _Model) -> Downlink:
        schema = schema_of(self._config.model)
        return Downlink.seal(
            encode(schema, model.parameters.numpy()),
            run=bytes.fromhex(self._run),
            round_number=model.round_number + 1,
            base_sha256=model.sha256,
            schema_sha256=schema.sha256,
            sender=self._identity,
        )

    def _plan(self, members: Sequence[str] | None, kind: PlanKind = "train") -> Plan:
        size = self._config.rounds.cohort_size
        drawn = 1 if members is None else len(members)
        return make_plan(
            self._config,
            self._run,
            kind,
            cohort_size=drawn if size is None else size,
            vocabulary=self._vocabulary,
        )

    def _new_release(
        self,
        round_number: int,
        attempt: int,
        parameters: Tensor,
        previous_sha256: bytes,
        metrics: dict[str, Metric],
    ) -> NewRelease:
        return NewRelease(
            round_number=round_number,
            attempt=attempt,
            plan=self._plan(None),
            vocabulary=self._vocabulary,
            parameters=parameters.numpy(),
            previous_sha256=previous_sha256,
            metrics=metrics,
            guarantee=self.guarantee,
        )

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _figures(counts: Counts) -> dict[str, Metric]:
    return {
        "perplexity": counts.perplexity,
        "top1_recall": counts.top1_recall,
        "top3_recall": counts.top3_recall,
    }


def _perplexity_text(metrics: dict[str, Metric]) -> str:
    return f", perplexity {metrics['perplexity']:.2f}" if "perplexity" in metrics else ""
