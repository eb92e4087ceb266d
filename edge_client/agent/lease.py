"""Serve one lease: fetch the sealed model, have it trained, deliver the sealed update.

After any interruption the lease can be resumed: a sealed update in the outbox is sent as it is, and
everything before it is made anew.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from edge_client.agent.acceptance import PlanRefusedError, accept_plan
from edge_client.agent.device import Device
from edge_client.agent.exit_status import NotServed
from edge_client.agent.job_outcome import outcome_of
from edge_client.agent.masks_helper import accept_helper
from edge_client.agent.plan_signature import check_signed
from edge_client.agent.word_lists import ensure_word_list
from edge_client.folder.outbox import KeptUpdate, Outbox
from edge_client.jobs.job import Evaluated, Failed, Fitted, Job, Trained
from edge_client.wire.backoff import delays
from edge_client.wire.coordinator_keys import take_up_keys
from edge_client.wire.refusal import RefusedError
from edge_client.wire.transport import Transport
from models.plan.plan import Plan, plan_schema
from models.plan.travel import describe_travel
from privacy.identities.certificates import CertificateError
from protos import federation_pb2 as wire
from protos.refusals import RefusalCode

logger = logging.getLogger(__name__)

# The upload is sound but is not whole yet: ask for the offset and send the rest.
RESUME_CODES = frozenset(
    {
        RefusalCode.WRONG_OFFSET,
        RefusalCode.UPLOAD_SUPERSEDED,
        RefusalCode.INCOMPLETE_UPLOAD,
    }
)
# The coordinator cannot take it now.
WAIT_CODES = frozenset(
    {
        RefusalCode.DISK_FULL,
        RefusalCode.RATE_LIMITED,
        RefusalCode.COMMIT_RUNNING,
    }
)
# The lease lives on, and the same text and plan would make the same update again.
HOPELESS_CODES = frozenset(
    {
        RefusalCode.MALFORMED_UPDATE,
        RefusalCode.EXAMPLE_COUNT,
        RefusalCode.WRONG_SIZE,
        RefusalCode.CHUNK_SIZE,
    }
)


async def serve_lease(lease: wire.Lease, device: Device, transport: Transport) -> NotServed | None:
    """Serve a lease until the coordinator has the answer; return None, or the reason if not served.

    Raises:
        UnreachableError: If the connection broke; check in again and go on.
        RefusedError: If the coordinator no longer wants the answer.
    """
    device.folder.keep_work_of(lease.nonce)
    try:
        _take_up_keys(lease, device)
        signed = check_signed(lease, device.folder, now=time.time())
        plan = accept_plan(lease, device.floor, device.traffic)
        authority = device.folder.enrolment().ca_certificate
        accept_helper(lease, plan, device.floor.helpers, authority=authority, now=time.time())
        logger.info("round %d: privacy: %s", lease.round_number, plan.privacy.guarantee)
        device.folder.note_signed_plan(signed.encode())
        _tell_travel(lease, plan, device)
        kept = await _kept_for(lease, device, transport)
        if kept is None:
            if plan.vocabulary is not None:
                await ensure_word_list(
                    plan.vocabulary,
                    device.folder.word_lists,
                    transport,
                    coordinator=lease.software_version,
                )
            sealed = await _fetch(lease, device, transport)
            kept = await _work(lease, plan, sealed, device, transport)
    except PlanRefusedError as refusal:
        told = f"round {lease.round_number}: plan refused ({refusal.code}): {refusal}"
        logger.warning("%s", told)
        await transport.refuse_plan(lease.nonce, refusal.code)
        device.folder.note_refused(told)
        return NotServed(refusal.code, str(refusal))
    if kept is not None:
        await _deliver(kept, device, transport)
        logger.info("round %d: %s delivered", lease.round_number, kept.kind)
    return None


async def _kept_for(lease: wire.Lease, device: Device, transport: Transport) -> KeptUpdate | None:
    """Return the update made for this lease, and settle what became of one made for another."""
    outbox = device.folder.outbox()
    kept = outbox.kept()
    if kept is not None and not kept.answers(lease):
        await settle(kept, device, transport)
    kept = outbox.kept_for(lease)
    if kept is None:
        device.folder.personal.drop()
    return kept


async def settle(kept: KeptUpdate, device: Device, transport: Transport) -> None:
    """Ask whether a sealed update counts, where a state or embedding depends on it; forget it.

    The acknowledgement may have been lost. The same message gets the same answer.

    Raises:
        UnreachableError: If the connection broke; it can be asked again.
    """
    personal = device.folder.personal
    if kept.kind == "embedding" or personal.waits_for(kept.message_id):
        try:
            await _until_taken(lambda: _commit(kept, device, transport))
        except RefusedError as refusal:
            logger.warning("an earlier %s does not count: %s", kept.kind, refusal)
        else:
            personal.accept(kept.message_id)
    personal.drop()
    device.folder.outbox().clear()


def _tell_travel(lease: wire.Lease, plan: Plan, device: Device) -> None:
    """Log what travels in this round, and note it and the plan for the device's owner."""
    travel = describe_travel(plan.personalisation, plan_schema(plan), plan.compression)
    logger.info("round %d: personalisation: %s", lease.round_number, travel)
    device.folder.note_travel(travel)
    device.folder.note_plan(plan.encode())


def _take_up_keys(lease: wire.Lease, device: Device) -> None:
    try:
        take_up_keys(lease, device.folder, now=time.time())
    except CertificateError as error:
        raise PlanRefusedError("certificate_unusable", str(error)) from None


@dataclass(frozen=True)
class _SealedModel:
    """The files of a sealed model: everyone's part, this device's own, and the hypernetwork.

    ``held_sha256`` is the release that everyone's part leads from; None if that part is whole.
    """

    shared: Path
    generated: Path | None
    hypernetwork: Path | None
    held_sha256: bytes | None

    def delete(self) -> None:
        for path in (self.shared, self.generated, self.hypernetwork):
            if path is not None:
                path.unlink(missing_ok=True)


async def _fetch(lease: wire.Lease, device: Device, transport: Transport) -> _SealedModel:
    stem = device.folder.work / lease.nonce.hex()
    moved = _moved_from(lease, device.folder.held.sha256)
    held = None if moved is None else moved.base_sha256
    sealed = _SealedModel(
        stem.with_suffix(".model" if held is None else f".from-{held.hex()[:16]}"),
        stem.with_suffix(".generated") if lease.generated_bytes else None,
        stem.with_suffix(".hypernetwork") if lease.hypernetwork_bytes else None,
        held,
    )
    shared_bytes = lease.download_bytes if moved is None else moved.download_bytes
    for part, total_bytes, path, base_sha256 in (
        (wire.MODEL_PART_SHARED, shared_bytes, sealed.shared, held or b""),
        (wire.MODEL_PART_GENERATED, lease.generated_bytes, sealed.generated, b""),
        (wire.MODEL_PART_HYPERNETWORK, lease.hypernetwork_bytes, sealed.hypernetwork, b""),
    ):
        if path is not None:
            before = _size_bytes(path)
            try:
                await transport.fetch_model(lease, part, total_bytes, path, base_sha256)
            finally:
                # However it ended: the owner's limit is on what was moved.
                device.traffic.add(bytes_down=_size_bytes(path) - before)
    return sealed


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _moved_from(lease: wire.Lease, held_sha256: bytes | None) -> wire.MovedModel | None:
    """Return the way from the release that the device holds, where it is offered and shorter."""
    offered = (
        moved
        for moved in lease.moved
        if moved.base_sha256 == held_sha256 and moved.download_bytes < lease.download_bytes
    )
    return next(offered, None)


async def _work(
    lease: wire.Lease, plan: Plan, sealed: _SealedModel, device: Device, transport: Transport
) -> KeptUpdate | None:
    """Have the job done; return the update to deliver, or None if there was another answer."""
    outbox = device.folder.outbox()
    logger.info("round %d: %s started", lease.round_number, plan.kind)
    try:
        outcome = await outcome_of(_job(lease, sealed, device), plan, device.trainer)
    finally:
        sealed.delete()
    match outcome:
        case Trained():
            return _keep(lease, outcome, outbox, outcome.example_count)
        case Fitted(is_sealed=True):
            kept = _keep(lease, outcome, outbox)
            # What is fitted is this device's own, whether or not its embedding arrives.
            device.folder.personal.accept(outcome.message_id)
            return kept
        case Fitted():
            await _tell_fitted(lease, outcome, device, transport)
            return None
        case Evaluated():
            await transport.report(lease.nonce, outcome)
            return None
        case Failed(code=code, reason=reason) if code == RefusalCode.UNSEAL_FAILED:
            # Not the plan's fault: the keys have changed, or the file was damaged on the way.
            raise RefusedError(code, reason)
        case Failed():
            raise PlanRefusedError(outcome.code, outcome.reason)


def _keep(
    lease: wire.Lease, outcome: Trained | Fitted, outbox: Outbox, example_count: int = 0
) -> KeptUpdate:
    """Remember what was sealed, so that it can be sent again after any interruption."""
    kept = KeptUpdate(
        lease_nonce=lease.nonce,
        deadline_ms=lease.deadline_ms,
        base_sha256=lease.base_sha256,
        message_id=outcome.message_id,
        example_count=example_count,
        kind="update" if isinstance(outcome, Trained) else "embedding",
    )
    outbox.keep(kept)
    return kept


def _job(lease: wire.Lease, sealed: _SealedModel, device: Device) -> Job:
    return Job(
        device_folder=str(device.folder.path),
        plan=lease.plan,
        client_name=device.client_name,
        round_number=lease.round_number,
        slot=lease.slot,
        lease_nonce=lease.nonce,
        base_sha256=lease.base_sha256,
        sealed_model=str(sealed.shared),
        sealed_generated=None if sealed.generated is None else str(sealed.generated),
        sealed_hypernetwork=None if sealed.hypernetwork is None else str(sealed.hypernetwork),
        held_sha256=sealed.held_sha256,
        sealed_update=str(device.folder.outbox().sealed_update),
        deadline_ms=lease.deadline_ms,
        data=str(device.data),
        device=device.compute,
        passphrase=device.passphrase,
        attempt=lease.attempt,
        helper_certificate=lease.helper_certificate or None,
    )


async def _deliver(kept: KeptUpdate, device: Device, transport: Transport) -> None:
    """Send what is sealed until it is acknowledged, then forget it."""
    outbox = device.folder.outbox()

    async def attempt() -> None:
        if kept.kind == "update":
            await transport.upload(
                kept.lease_nonce,
                kept.message_id,
                outbox.sealed_update,
                lambda sent: device.traffic.add(bytes_up=sent),
            )
        await _commit(kept, device, transport)

    try:
        await _until_taken(attempt)
    except RefusedError as refusal:
        # These bytes will never be accepted; training again may be.
        device.folder.personal.drop()
        outbox.clear()
        if refusal.code in HOPELESS_CODES:
            await _give_up(kept.lease_nonce, refusal, transport)
        raise
    device.folder.personal.accept(kept.message_id)
    outbox.clear()


async def _commit(kept: KeptUpdate, device: Device, transport: Transport) -> None:
    """Have an uploaded update count, or an embedding, which is one message with its commit."""
    if kept.kind == "update":
        await transport.commit(kept.lease_nonce, kept.message_id, kept.example_count)
        return
    sealed = device.folder.outbox().sealed_update.read_bytes()
    try:
        await transport.send_embedding(kept.lease_nonce, sealed)
    finally:
        # Every attempt hands all of it to the connection.
        device.traffic.add(bytes_up=len(sealed))


async def _tell_fitted(
    lease: wire.Lease, fitted: Fitted, device: Device, transport: Transport
) -> None:
    """Let what was fitted count, for which nobody needs to be asked, and say that it is done."""
    device.folder.personal.accept(fitted.message_id)
    logger.info(
        "round %d: a model of this device's own is fitted; nothing of it is sent",
        lease.round_number,
    )
    await _until_taken(lambda: transport.send_embedding(lease.nonce, b""))


async def _give_up(nonce: bytes, refusal: RefusedError, transport: Transport) -> None:
    """Hand the lease back, so that the round does not wait for it until its deadline."""
    # A refusal here means that the lease has ended meanwhile: there is nothing left to give up.
    with contextlib.suppress(RefusedError):
        await transport.refuse_plan(nonce, refusal.code)


async def _until_taken(attempt: Callable[[], Awaitable[None]]) -> None:
    for delay_s in delays(random.SystemRandom()):
        try:
            await attempt()
        except RefusedError as refusal:
            if refusal.code not in RESUME_CODES | WAIT_CODES:
                raise
            logger.warning("delivery waits %.1f s: %s", delay_s, refusal)
            await asyncio.sleep(delay_s)
        else:
            return
