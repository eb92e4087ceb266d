"""Do one job in the training process; only sealed bytes and counts leave it."""

import logging
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import torch
from torch import Tensor

from edge_client.child.optimiser_store import load_state, save_state
from edge_client.child.own_examples import ExamplesReader, OwnExamples, examples_reader
from edge_client.child.own_plugins import load_own_plugins
from edge_client.child.received_model import UnusableModelError, check_received
from edge_client.child.sealed_exchange import SealedExchange, Start
from edge_client.datasets.text_set import DatasetError
from edge_client.descent.compute import ComputeError, prepare_compute
from edge_client.folder.held_release import HeldReleaseError
from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.jobs.job import Evaluated, Failed, Fitted, Job, Outcome, Trained
from edge_client.owner.example_ledger import (
    ExampleBudgetError,
    ExampleLedgerError,
    ExampleSpending,
    check_budget,
    read_spending,
    write_spending,
)
from edge_client.owner.floor import FloorError, read_floor
from edge_client.owner.settings import ClientSettingsError, read_client_settings
from edge_client.owner.typed_text import TextSettings
from edge_client.personalisation.adapted import tell_owner
from edge_client.personalisation.grown_state import read_kept_state
from edge_client.personalisation.state import (
    PersonalState,
    PersonalStateError,
    StateLayout,
    flat_state,
    write_state,
)
from edge_client.training.local_round import LocalTrainer
from edge_client.training.new_client import Fitted as FittedModel
from edge_client.training.new_client import NewClientFit
from models.compression.entropy import MissingZstdError
from models.plan.onlookers import check_hiding, hides_from_coordinator
from models.plan.plan import Plan, PlanError, decode_plan
from models.plugins.names import PluginError
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.vocabulary import VocabularyError
from models.vector.codec import CodecError
from privacy.clipping.clip import UnusableUpdateError
from privacy.example_level.accounting import (
    ExampleAccountantError,
    example_epsilon,
    require_accountant,
    with_event,
)
from privacy.foundation.secure_source import SecureSource
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity
from privacy.sealing.envelope import UnsealError
from protos.refusals import RefusalCode

_LOG = logging.getLogger(__name__)

_NAME_BYTES = 16
"""Length of the id under which a state waits with nothing sealed: a message id's."""

# What can go wrong on a healthy device, and the code that the coordinator is told.
_FAILURES: dict[type[Exception], str] = {
    ClientSettingsError: "settings_unusable",
    ComputeError: "device_missing",
    DatasetError: "data_unusable",
    UnusableExamplesError: "data_unusable",
    VocabularyError: "vocabulary_mismatch",
    UnusableUpdateError: "update_not_finite",
    UnsealError: RefusalCode.UNSEAL_FAILED,
    HeldReleaseError: RefusalCode.UNSEAL_FAILED,
    CodecError: "bad_payload",
    UnusableModelError: "model_unusable",
    CertificateError: "certificate_unusable",
    KeyFileError: "identity_unusable",
    DeviceFolderError: "identity_unusable",
    ExampleAccountantError: "accountant_unusable",
    ExampleBudgetError: "example_budget_spent",
    ExampleLedgerError: "example_ledger_unusable",
    FloorError: "floor_unusable",
    PersonalStateError: "personal_state_unusable",
    MissingZstdError: "zstd_missing",
    MemoryError: "out_of_memory",
    torch.OutOfMemoryError: "out_of_memory",
    OSError: "disk",
    PlanError: "plan_unreadable",
    PluginError: "plugin_unusable",
    # Last, as some above are kinds of it: a task or a method that only the other side knows.
    ValueError: "plan_unusable",
}


def do_job(job: Job) -> Outcome:
    """Do one job and return its outcome; a failure that a device can meet is an outcome, too."""
    try:
        return _do(job)
    except tuple(_FAILURES) as error:
        code = next(code for kind, code in _FAILURES.items() if isinstance(error, kind))
        return Failed(code=code, reason=str(error) or code)
    finally:
        torch.set_flush_denormal(False)


def _do(job: Job) -> Outcome:
    folder = DeviceFolder(Path(job.device_folder))
    load_own_plugins(job.plan, folder)
    plan = decode_plan(job.plan)
    check_hiding(plan)
    hides = hides_from_coordinator(plan)
    # Numbers below float32's normal range take up to 200 times as long: time would tell of them.
    torch.set_flush_denormal(hides)
    # Bit-identical to a simulation: float32 sums in one thread. bfloat16 promises no such thing.
    threads = 1 if hides or plan.training.precision == "float32" else None
    device = prepare_compute(job.device, threads, model=plan.model)
    identity = Identity.load(folder.identity, job.passphrase)
    read_examples = examples_reader(plan, folder.word_lists)
    exchange = SealedExchange(job, plan, identity, folder)
    work = _Work(job, plan, folder, exchange, read_examples, device)
    match plan.kind:
        case "train":
            return work.train()
        case "evaluate":
            return work.evaluate()
        case "fit_embedding":
            return work.fit_embedding()
        case "fit_personal":
            return work.fit_personal()
        case _:
            assert_never(plan.kind)


@dataclass(frozen=True)
class _Work:
    """The parts that one job needs, whatever its plan's kind."""

    job: Job
    plan: Plan
    folder: DeviceFolder
    exchange: SealedExchange
    read_examples: ExamplesReader
    device: torch.device

    def train(self) -> Trained:
        """Train on the device's text, and seal the update."""
        start = self._start()
        trainer = LocalTrainer(self.plan, self.device)
        spending = _spending_after(self.plan, self.folder)
        optimiser_state = load_state(self.folder.optimiser, self.plan)
        personal = self._personal(trainer.layout)
        # Only now the text: what was refused until here was refused for what the plan asks.
        own, examples = self._examples_to_train_on()
        result = trainer.train(
            start.parameters,
            examples,
            round_number=self.job.round_number,
            client_name=self.job.client_name,
            optimiser_state=optimiser_state,
            personal=personal,
        )
        if result.failure is not None and examples is not None:
            _tell_owner(result.failure)
        save_state(self.folder.optimiser, self.plan, result.optimiser_state)
        if spending is not None:
            # Durable before there is an update to send: a crash counts too much then, not less.
            write_spending(self.folder.example_ledger, spending)
        message_id = self.exchange.seal_update(start.sha256, result.update, result.payload)
        if result.personal is not None:
            waiting = self.folder.personal.waiting(message_id)
            write_state(waiting, trainer.layout, result.personal)
            tell_owner(self.folder, result.personal)
        self._delete_trained(own)
        # Under a guarantee nobody is told how much this person writes.
        count = min(result.example_count, self.plan.training.example_cap)
        told = 0 if self.plan.privacy.guarantees_privacy else count
        return Trained(example_count=told, message_id=message_id)

    def evaluate(self) -> Evaluated:
        """Count what the device's own model gets right on its held-out text."""
        start = self.exchange.open_model()
        own = self._own_examples()
        trainer = LocalTrainer(self.plan, self.device)
        counts = trainer.evaluate(
            start.parameters,
            own.held_out(),
            client_name=self.job.client_name,
            training_examples=own.training(),
            personal=self._personal(trainer.layout),
        )
        return Evaluated(
            token_count=counts.token_count,
            log_loss_sum=counts.log_loss_sum,
            top1_hits=counts.top1_hits,
            top3_hits=counts.top3_hits,
            word_count=None if self.plan.vocabulary is None else counts.word_count,
            unknown_count=counts.unknown_count,
        )

    def fit_embedding(self) -> Fitted:
        """Fit the device's embedding, and seal it; what is personal besides waits beside it."""
        start = self.exchange.open_hypernetwork()
        embedding, personal = self._fit(NewClientFit(self.plan, start.hypernetwork), start.released)
        if embedding is None:
            raise PlanError(f'method "{self.plan.personalisation.method}" has no embedding to fit')
        message_id = self.exchange.seal_update(start.sha256, embedding)
        layout = LocalTrainer(self.plan, self.device).layout
        if not layout.is_empty:
            write_state(self.folder.personal.waiting(message_id), layout, personal)
        return Fitted(message_id=message_id, is_sealed=True)

    def fit_personal(self) -> Fitted:
        """Fit what the device keeps to itself; nothing is sealed, and nothing leaves."""
        layout = LocalTrainer(self.plan, self.device).layout
        if layout.is_empty:
            raise PlanError(f'method "{self.plan.personalisation.method}" keeps nothing to fit')
        if self.folder.personal.current.exists():
            raise PersonalStateError("this device has a personal model, which no fit replaces")
        personal = self._fitted(layout, self._start().parameters)
        message_id = SecureSource().bytes(_NAME_BYTES)
        write_state(self.folder.personal.waiting(message_id), layout, personal)
        tell_owner(self.folder, personal)
        return Fitted(message_id=message_id, is_sealed=False)

    def _fit(
        self, fit: NewClientFit, released: Tensor, limits: TextSettings | None = None
    ) -> tuple[Tensor | None, PersonalState]:
        """Fit, and return the embedding, where the method has one, and what is personal."""
        settings = self.plan.embedding_fit
        if settings is None:
            raise PlanError("a plan to fit must say how, it does not")
        last: deque[FittedModel] = deque(maxlen=1)
        embedding = fit.fit(
            released,
            self._own_examples(limits).training(),
            client_name=self.job.client_name,
            settings=settings,
            after_epoch=lambda _, model: last.append(model),
        )
        return embedding, last[0].personal

    def _fitted(self, layout: StateLayout, parameters: Tensor) -> PersonalState:
        """Return a fitted state, or the first one, where the plan hides that nothing was fitted."""
        first = LocalTrainer(self.plan, self.device).first_state(parameters)
        fit = NewClientFit(self.plan, device=self.device)
        limits = self._limits()
        try:
            if self.job.leaves_data_out:
                raise DatasetError("the training process died of the data")
            _, personal = self._fit(fit, parameters, limits)
            if not bool(flat_state(layout, personal).isfinite().all()):
                raise UnusableUpdateError("fitting left NaN in what is this device's own")
        except Exception as error:
            if not hides_from_coordinator(self.plan):
                raise
            _tell_owner(error)
            return first
        return personal

    def _start(self) -> Start:
        """Open the model; where the plan hides the text, refuse one that no training ends in."""
        start = self.exchange.open_model()
        if hides_from_coordinator(self.plan):
            check_received(start.parameters)
        return start

    def _limits(self) -> TextSettings:
        return read_client_settings(self.folder.client_settings).text

    def _own_examples(self, limits: TextSettings | None = None) -> OwnExamples:
        limits = self._limits() if limits is None else limits
        return self.read_examples(Path(self.job.data), limits, time.time())

    def _examples_to_train_on(self) -> tuple[OwnExamples | None, Any]:  # Any: of the plan's task
        """Return the device's text and the examples in it.

        Either is None where it cannot be used and the plan hides that: neither that there is a
        text, nor that it has a word of a list that somebody chose, may be seen in the answer.
        """
        limits, own = self._limits(), None
        if self.job.leaves_data_out:
            return None, None
        try:
            own = self._own_examples(limits)
            return own, own.training()
        except Exception as error:
            if not hides_from_coordinator(self.plan):
                raise
            _tell_owner(error)
            return own, None

    def _delete_trained(self, own: OwnExamples | None) -> None:
        """Remove what was to be trained on, where the owner says so, whatever training made of it.

        A text that stayed because of what a model made of it would bring its device back for it.
        """
        if own is None:
            return
        try:
            own.delete_trained()
        except Exception as error:
            if not hides_from_coordinator(self.plan):
                raise
            _tell_owner(error)

    def _personal(self, layout: StateLayout) -> PersonalState | None:
        if layout.is_empty:
            return None
        return read_kept_state(self.folder.personal.current, self.plan, layout)


def _spending_after(plan: Plan, folder: DeviceFolder) -> ExampleSpending | None:
    """Return the text's spending after the round; refuse one over the owner's budget."""
    privacy = plan.training.example_privacy
    if privacy is None:
        return None
    require_accountant()
    budget = read_floor(folder.floor).example_privacy
    spent = read_spending(folder.example_ledger)
    events = with_event(spent.events, privacy.event(plan.training.local_epochs))
    delta = privacy.delta if budget is None else budget.delta
    epsilon = example_epsilon(events, delta)
    if budget is not None:
        check_budget(epsilon, budget)
    return ExampleSpending(
        events=events, round_count=spent.round_count + 1, epsilon=epsilon, delta=delta
    )


def _tell_owner(error: Exception) -> None:
    """Write to the device's own log why nothing was learnt; the coordinator gets an answer."""
    # The words of an error that nobody thought of might repeat a part of the text.
    known = isinstance(error, tuple(_FAILURES)) and not isinstance(error, UnicodeError)
    _LOG.warning(
        "nothing was learnt in this round, and a noised update of nothing is sent: %s",
        f"{type(error).__name__}: {error}" if known else type(error).__name__,
    )
