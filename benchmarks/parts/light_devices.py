"""Thousands of devices that do not train, in one process: check in, fetch, open, seal, deliver.

``python -m benchmarks.parts.light_devices CROWD.msgpack FOLDER``. Wire and sealing are the device's
own; each device has a TLS connection and a stream of its own. Only training, the agent's outbox and
its folder are left out. A line on standard input, a ``Task``, is answered by one of ``Told``.

Every tenth device may misbehave instead of delivering, in turn: it stalls in the middle of a
message that it never ends, sends garbage of the right size, or is gone in the middle of its update.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterable
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from benchmarks.parts.admitted_crowd import Crowd, Member
from benchmarks.parts.strangers_on_the_wire import Line
from edge_client.agent.lease import RESUME_CODES, WAIT_CODES
from edge_client.wire.backoff import delays
from edge_client.wire.refusal import RefusedError, UnreachableError
from edge_client.wire.transport import Transport
from models.plan.plan import Plan, decode_plan, download_schema, upload_schema
from models.plan.signed_plan import plan_digest
from models.vector.codec import encode, payload_size
from privacy.foundation.shortages import raise_descriptor_limit
from privacy.identities.certificates import certificate_pem, read_certificate
from privacy.identities.keys import PrivateKey
from privacy.identities.party import Identity, KeyPair
from privacy.sealing.envelope import (
    NO_NONCE,
    NO_PLAN,
    Direction,
    MessageContext,
    open_sealed,
    seal,
)
from protos import federation_pb2 as pb
from protos.version import VERSION

_EXAMPLES = 100
_PAYLOADS = 16
_STALL_AGAIN_S = 10.0
BAD_EVERY = 10
KINDS = ("stall", "garbage", "vanish")


class Task(msgspec.Struct, frozen=True):
    """One order to the crowd.

    Attributes:
        what: ``arrive``: check in, each at a moment within ``within_s``, and wait for a lease.
            ``deliver``: take part in the round whose lease each holds. ``leave``: hang up.
        count: The first so many devices of the crowd.
        tenth: What every tenth device does: ``honest`` like the rest, ``away``: nothing at all,
            or ``bad``.
    """

    what: str
    count: int
    within_s: float = 0.0
    tenth: str = "honest"


class Told(msgspec.Struct, frozen=True):
    """What came of a task: seconds of each device, and counts by name.

    ``ended_at``, Unix seconds, is when the last honest device was done.
    """

    seconds: list[float]
    counts: dict[str, int]
    ended_at: float


class _Wire(Transport):
    """A device's connection, on which it may also begin what it will not end."""

    async def open_upload(self, nonce: bytes, message_id: bytes, total_bytes: int) -> None:
        """Announce an upload."""
        request = pb.OpenUploadRequest(
            lease_nonce=nonce, message_id=message_id, total_bytes=total_bytes
        )
        await self._stub.OpenUpload(request)


class Light:
    """One device of the crowd.

    Attributes:
        lease: Its newest lease; None before the first.
    """

    def __init__(self, crowd: Crowd, number: int, counts: Counter[str]) -> None:
        self.lease: pb.Lease | None = None
        self._crowd = crowd
        self._number = number
        self._member: Member = crowd.members[number]
        self._counts = counts
        self._leased = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._line: Line | None = None

    @property
    def misbehaves_as(self) -> str | None:
        """Return the device's kind of misbehaviour; None for one that is always honest."""
        tens, ones = divmod(self._number, BAD_EVERY)
        return KINDS[tens % len(KINDS)] if ones == 0 else None

    @cached_property
    def transport(self) -> _Wire:
        """Return the device's own connection."""
        return _Wire(
            self._crowd.address,
            self._crowd.authority,
            self._member.tls_key,
            certificate_pem(self._member.tls),
        )

    @cached_property
    def identity(self) -> Identity:
        """Return the device's keys."""
        crowd, member = self._crowd, self._member
        turn = self._number % len(crowd.signing_keys)
        return Identity(
            authority=crowd.authority,
            tls=_pair(member.tls_key, member.tls),
            wrapping=_pair(crowd.wrapping_keys[turn], member.wrapping),
            signing=_pair(crowd.signing_keys[turn], member.signing),
        )

    async def arrive(self, delay_s: float) -> float:
        """Check in after a while, and return the seconds from then to the lease."""
        await asyncio.sleep(delay_s)
        started = time.perf_counter()
        self._listening = asyncio.create_task(self._listen())
        leased = asyncio.create_task(self._leased.wait())
        await asyncio.wait({leased, self._listening}, return_when=asyncio.FIRST_COMPLETED)
        if not leased.done():
            leased.cancel()
            await self._listening
        return time.perf_counter() - started

    async def _listen(self) -> None:
        check_in = pb.CheckInRequest(
            device_time_ms=round(time.time() * 1000), software_version=VERSION
        )
        async for order in self.transport.work_orders(check_in):
            if order.HasField("lease"):
                self.lease = order.lease
                self._leased.set()
        raise UnreachableError("the stream ended")

    async def deliver(self, updates: "Updates", folder: Path) -> float:
        """Fetch, open, seal, upload and commit; return the seconds that took."""
        started = time.perf_counter()
        lease = self.held
        await self._open(lease, updates, folder)
        sealed = folder / f"{self._member.name}.sealed"
        message = seal(
            updates.payload_of(self._number),
            updates.context(lease),
            sender=self.identity,
            recipient=read_certificate(lease.coordinator.wrapping),
        )
        with sealed.open("wb") as file:
            file.writelines(message.views())
        try:
            await self._until_taken(lease, message.message_id, sealed)
        finally:
            sealed.unlink()
        return time.perf_counter() - started

    @property
    def held(self) -> pb.Lease:
        """Return the lease that the device has."""
        if self.lease is None:
            raise UnreachableError("no lease came")
        return self.lease

    async def _open(self, lease: pb.Lease, updates: "Updates", folder: Path) -> None:
        path = folder / f"{self._member.name}.model"
        try:
            await self.transport.fetch_model(
                lease, pb.MODEL_PART_SHARED, lease.download_bytes, path
            )
            with path.open("rb") as file:
                pieces = iter(lambda: file.read(1 << 20), b"")
                open_sealed(
                    pieces,
                    updates.context(lease, downlink=True),
                    payload_bytes=updates.download_bytes,
                    recipient=self.identity,
                    sender=read_certificate(lease.coordinator.signing),
                )
        finally:
            path.unlink(missing_ok=True)

    async def _until_taken(self, lease: pb.Lease, message_id: bytes, sealed: Path) -> None:
        for delay_s in delays(random.SystemRandom()):
            try:
                await self.transport.upload(lease.nonce, message_id, sealed, lambda _: None)
                await self.transport.commit(lease.nonce, message_id, _EXAMPLES)
            except RefusedError as refusal:
                if refusal.code not in RESUME_CODES | WAIT_CODES:
                    raise
                self._counts["come_again"] += 1
                await asyncio.sleep(delay_s)
            else:
                return

    async def misbehave(self, folder: Path) -> None:
        """Do the device's own kind of harm, for as long as it is let."""
        lease, message_id = self.held, os.urandom(16)
        garbage = folder / f"{self._member.name}.garbage"
        try:
            match self.misbehaves_as:
                case "stall":
                    await self.transport.open_upload(lease.nonce, message_id, lease.upload_bytes)
                    while True:
                        await asyncio.to_thread(self._stall, lease, folder)
                        await asyncio.sleep(_STALL_AGAIN_S)
                case "garbage":
                    garbage.write_bytes(os.urandom(lease.upload_bytes))
                    while True:
                        await self._until_taken(lease, os.urandom(16), garbage)
                case _:
                    garbage.write_bytes(os.urandom(lease.upload_bytes))
                    going = asyncio.create_task(self._until_taken(lease, message_id, garbage))
                    await asyncio.sleep(0.05)
                    await self.leave()
                    await asyncio.wait({going})
                    raise going.exception() or UnreachableError("gone")
        except RefusedError as refusal:
            self._counts[f"bad_{refusal.code}"] += 1
        except UnreachableError:
            self._counts[f"bad_{self.misbehaves_as}_cut"] += 1
        finally:
            garbage.unlink(missing_ok=True)

    def _stall(self, lease: pb.Lease, folder: Path) -> None:
        """Send half a message on a connection of its own, and never the rest."""
        if self._line is None:
            pem = folder / f"{self._member.name}.pem"
            pem.write_bytes(self._member.tls_key + certificate_pem(self._member.tls))
            self._line = Line(int(self._crowd.address.rpartition(":")[2]), str(pem))
        piece = pb.UploadChunk(lease_nonce=lease.nonce, data=bytes(lease.upload_bytes))
        encoded = piece.SerializeToString()
        stream = self._line.call("Federation/Upload")
        self._line.send(stream, encoded[: len(encoded) // 16], of_bytes=len(encoded))

    async def leave(self) -> None:
        """Hang up."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        await self.transport.__aexit__()


class Updates:
    """What the devices of one round send, which depends on their names alone."""

    def __init__(self, plan: bytes) -> None:
        self._encoded = plan
        self._plan: Plan = decode_plan(plan)
        schema = upload_schema(self._plan)
        self._schema_sha256 = schema.sha256
        self._download = download_schema(self._plan)
        self.download_bytes = payload_size(self._download)
        base = np.random.default_rng(1).standard_normal(schema.element_count, np.float32)
        self._payloads = [
            encode(schema, base * np.float32(1e-4 * (share + 1))) for share in range(_PAYLOADS)
        ]

    def payload_of(self, number: int) -> memoryview:
        """Return a device's encoded update."""
        return self._payloads[number % _PAYLOADS]

    def context(self, lease: pb.Lease, *, downlink: bool = False) -> MessageContext:
        """Return what a message belongs to."""
        return MessageContext(
            direction=Direction.DOWNLINK if downlink else Direction.UPLINK,
            run=bytes.fromhex(self._plan.run),
            round_number=lease.round_number,
            slot=0 if downlink else lease.slot,
            lease_nonce=NO_NONCE if downlink else lease.nonce,
            base_sha256=lease.base_sha256,
            schema_sha256=self._download.sha256 if downlink else self._schema_sha256,
            plan_sha256=NO_PLAN if downlink else plan_digest(self._encoded),
            deadline_ms=0 if downlink else lease.deadline_ms,
        )


class Devices:
    """The crowd's devices, and what they are told to do."""

    def __init__(self, crowd: Crowd, folder: Path) -> None:
        self._crowd = crowd
        self._folder = folder
        self._counts: Counter[str] = Counter()
        self._devices: list[Light] = []
        self._misbehaving: list[asyncio.Task[None]] = []

    async def do(self, task: Task) -> Told:
        """Do one task and tell what came of it."""
        self._counts.clear()
        match task.what:
            case "arrive":
                seconds = await self._arrive(task)
            case "deliver":
                seconds = await self._deliver(task)
            case _:
                seconds = await self._leave()
        return Told(seconds, dict(self._counts), time.time())

    async def _arrive(self, task: Task) -> list[float]:
        chance = random.Random(1)  # noqa: S311  # moments of arrival
        numbers = range(len(self._devices), task.count)
        coming = [Light(self._crowd, number, self._counts) for number in numbers]
        if task.tenth == "away":
            coming = [device for device in coming if device.misbehaves_as is None]
        self._devices += coming
        return await self._all(device.arrive(chance.uniform(0, task.within_s)) for device in coming)

    async def _deliver(self, task: Task) -> list[float]:
        updates = Updates(self._devices[0].held.plan)
        bad = task.tenth == "bad"
        for device in self._devices if bad else ():
            if device.misbehaves_as is not None:
                self._misbehaving.append(asyncio.create_task(device.misbehave(self._folder)))
        return await self._all(
            device.deliver(updates, self._folder)
            for device in self._devices
            if not bad or device.misbehaves_as is None
        )

    async def _leave(self) -> list[float]:
        for task in self._misbehaving:
            task.cancel()
        await asyncio.gather(*self._misbehaving, return_exceptions=True)
        self._misbehaving.clear()
        await asyncio.gather(*(device.leave() for device in self._devices))
        self._devices.clear()
        return []

    async def _all(self, work: Iterable[Coroutine[None, None, float]]) -> list[float]:
        """Return the seconds of those that succeeded; the others are counted as errors."""
        ended = await asyncio.gather(*work, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                self._counts["errors"] += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return [each for each in ended if isinstance(each, float)]


async def _serve(crowd: Crowd, folder: Path) -> None:
    devices = Devices(crowd, folder)
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = await devices.do(msgspec.json.decode(line, type=Task))
        print(msgspec.json.encode(told).decode(), flush=True)


def main() -> None:
    """Do what standard input says until it is closed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("crowd", type=Path)
    parser.add_argument("folder", type=Path, help="where sealed messages lie for a moment")
    arguments = parser.parse_args()
    raise_descriptor_limit()
    os.umask(0o077)
    crowd = msgspec.msgpack.decode(arguments.crowd.read_bytes(), type=Crowd)
    asyncio.run(_serve(crowd, arguments.folder))


def _pair(key: bytes, der: bytes) -> KeyPair:
    private = load_pem_private_key(key, None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(private, PrivateKey):
        raise TypeError("a device's keys are RSA and P-256")
    return KeyPair(private, read_certificate(der))


if __name__ == "__main__":
    main()
