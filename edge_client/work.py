"""Do one job: open the model, train or evaluate on the device's own data, seal the answer.

Runs in the training process. Only sealed bytes and counts leave it.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from edge_client.client_settings import ClientSettingsError, read_client_settings
from edge_client.compute import ComputeError, prepare_compute
from edge_client.datasets.federated_text import DatasetError
from edge_client.device_examples import OwnText
from edge_client.device_folder import DeviceFolder, DeviceFolderError
from edge_client.example_ledger import (
    ExampleBudgetError,
    ExampleLedgerError,
    ExampleSpending,
    check_budget,
    read_spending,
    write_spending,
)
from edge_client.floor import FloorError, read_floor
from edge_client.job import Evaluated, Failed, Job, Outcome, Trained
from edge_client.local_round import run_evaluation, run_training
from edge_client.optimiser_store import load_state, save_state
from edge_client.word_lists import word_list
from models.codec import CodecError, decode, encode, payload_size
from models.model_settings import schema_of
from models.next_word import UnusableExamplesError
from models.plan import Plan, PlanError, decode_plan, upload_schema
from models.vocabulary import VocabularyError
from privacy.atomic import write_chunks_atomically
from privacy.certificates import CertificateError, CertifiedKey, KeyUse, check_certificate
from privacy.clipping import UnusableUpdateError
from privacy.envelope import Direction, MessageContext, UnsealError, open_sealed, seal
from privacy.example_accounting import (
    ExampleAccountantError,
    example_epsilon,
    require_accountant,
    with_event,
)
from privacy.identity import Identity
from privacy.keys import KeyFileError

_PIECE_BYTES = 1 << 20
_NO_NONCE = bytes(16)

# What can go wrong on a healthy device, and the code that the coordinator is told.
_FAILURES: dict[type[Exception], str] = {
    ClientSettingsError: "settings_unusable",
    ComputeError: "device_missing",
    DatasetError: "data_unusable",
    UnusableExamplesError: "data_unusable",
    VocabularyError: "vocabulary_mismatch",
    UnusableUpdateError: "update_not_finite",
    UnsealError: "unseal_failed",
    CodecError: "bad_payload",
    CertificateError: "certificate_unusable",
    KeyFileError: "identity_unusable",
    DeviceFolderError: "identity_unusable",
    ExampleAccountantError: "accountant_unusable",
    ExampleBudgetError: "example_budget_spent",
    ExampleLedgerError: "example_ledger_unusable",
    FloorError: "floor_unusable",
    MemoryError: "out_of_memory",
    torch.OutOfMemoryError: "out_of_memory",
    OSError: "disk",
    PlanError: "plan_unreadable",
    # Last, as some above are kinds of it: a task or a method that only the other side knows.
    ValueError: "plan_unusable",
}


def do_job(job: Job) -> Outcome:
    """Do one job and return what came of it; what a device can meet is an outcome, not a crash."""
    try:
        return _do(job)
    except tuple(_FAILURES) as error:
        code = next(code for kind, code in _FAILURES.items() if isinstance(error, kind))
        return Failed(code=code, reason=str(error) or code)


def _do(job: Job) -> Outcome:
    plan = decode_plan(job.plan)
    # Bit-identical to a simulation: float32 sums in one thread. bfloat16 promises no such thing.
    threads = 1 if plan.training.precision == "float32" else None
    device = prepare_compute(job.device, threads)
    folder = DeviceFolder(Path(job.device_folder))
    identity = Identity.load(folder.identity, job.passphrase)
    if plan.vocabulary is None:
        raise PlanError(f'task "{plan.task}" is not one that this device has examples for')
    words = word_list(plan.vocabulary, folder.word_lists)
    parameters = _open_model(job, plan, identity, folder)
    limits = read_client_settings(folder.client_settings).text
    own_text = OwnText.read(Path(job.data), limits, now=time.time())
    if plan.kind == "evaluate":
        counts = run_evaluation(plan, parameters, own_text.held_out_examples(words), device)
        return Evaluated(
            token_count=counts.token_count,
            log_loss_sum=counts.log_loss_sum,
            top1_hits=counts.top1_hits,
            top3_hits=counts.top3_hits,
        )
    spending = _spending_after(plan, folder)
    result = run_training(
        plan,
        parameters,
        own_text.training_examples(words),
        round_number=job.round_number,
        client_name=job.client_name,
        device=device,
        optimiser_state=load_state(folder.optimiser, plan),
    )
    save_state(folder.optimiser, plan, result.optimiser_state)
    if spending is not None:
        # Durable before there is an update to send: a crash in between counts too much, not less.
        write_spending(folder.example_ledger, spending)
    message_id = _seal_update(job, plan, result.update, identity, folder)
    own_text.delete_trained()
    # Under a guarantee nobody is told how much this person writes.
    told = 0 if plan.privacy.guarantees_privacy else result.example_count
    return Trained(example_count=told, message_id=message_id)


def _spending_after(plan: Plan, folder: DeviceFolder) -> ExampleSpending | None:
    """Return what this text will have spent after the round; None without example privacy.

    Raises:
        ExampleBudgetError: If that is more than the device's owner allows.
    """
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


def _open_model(job: Job, plan: Plan, identity: Identity, folder: DeviceFolder) -> Tensor:
    """Return the received parameters, flat float32, shape ``(elements,)``, writable."""
    schema = schema_of(plan.model)
    payload = open_sealed(
        _pieces(Path(job.sealed_model)),
        _context(job, plan, Direction.DOWNLINK),
        payload_bytes=payload_size(schema),
        recipient=identity,
        sender=_coordinator_key(folder, identity, KeyUse.SIGNING),
    )
    # Copied once: the payload is read-only, and torch would not promise to leave it alone.
    return torch.from_numpy(decode(schema, payload).copy())


def _seal_update(
    job: Job, plan: Plan, update: Tensor, identity: Identity, folder: DeviceFolder
) -> bytes:
    """Write the sealed update to the job's path and return its message id."""
    sealed = seal(
        encode(upload_schema(plan), update.numpy()),
        _context(job, plan, Direction.UPLINK),
        sender=identity,
        recipient=_coordinator_key(folder, identity, KeyUse.WRAPPING),
    )
    # The agent flushes it together with what it writes about it, before a byte is sent.
    write_chunks_atomically(Path(job.sealed_update), sealed.views(), flush=False)
    return sealed.message_id


def _coordinator_key(folder: DeviceFolder, identity: Identity, use: KeyUse) -> CertifiedKey:
    """Return the coordinator's key for ``use`` after checking that it may be used now."""
    keys = folder.coordinator()
    der = keys.signing if use is KeyUse.SIGNING else keys.wrapping
    return check_certificate(
        der, ca=identity.authority, use=use, role="coordinator", now=time.time()
    )


def _context(job: Job, plan: Plan, direction: Direction) -> MessageContext:
    """Bind a message to its lease; the model's own is one for the whole cohort."""
    up = direction is Direction.UPLINK
    schema = upload_schema(plan) if up else schema_of(plan.model)
    return MessageContext(
        direction=direction,
        run=bytes.fromhex(plan.run),
        round_number=job.round_number,
        slot=job.slot if up else 0,
        lease_nonce=job.lease_nonce if up else _NO_NONCE,
        base_sha256=job.base_sha256,
        schema_sha256=schema.sha256,
        deadline_ms=job.deadline_ms if up else 0,
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
