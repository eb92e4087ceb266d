"""Run a device that does everything but train: fetches, opens, seals, delivers.

``python -m benchmarks.parts.idle_device FOLDER [--never-answer] [--verbose]``. The agent is the
product's; only the child that would train is replaced, by one in the agent's own process and
without torch. The update is a hundredth of what the device received, a share that depends on its
name, so that equal rounds end in equal models. Under masks it is one vector, laid on its grid in
the first round and masked anew in each: rounding and noise are figures of their own
(``benchmarks.secure_sum``).
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.agent.agent import Agent
from edge_client.agent.device import Device
from edge_client.child.masking import masked_payload
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Failed, Job, Outcome, Trained
from edge_client.owner.floor import read_floor
from edge_client.owner.policy import PolicySettings
from edge_client.owner.sensors import Reading
from edge_client.owner.traffic import Traffic
from models.masked.layout import masked_layout
from models.plan.plan import Plan, decode_plan
from models.plan.signed_plan import plan_digest
from models.settings.model import schema_of
from models.vector.codec import decode, payload_size
from models.vector.schema import Schema
from privacy.foundation.atomic_files import write_chunks_atomically
from privacy.identities.certificates import read_certificate
from privacy.identities.party import Identity
from privacy.masking.rotation import rotate
from privacy.noise.masked_settings import MaskedNoise
from privacy.sealing.envelope import NO_PLAN, Direction, MessageContext, Opener, UnsealError, seal
from protos.refusals import RefusalCode


class IdleTrainer:
    """Answer jobs at once, or never."""

    def __init__(self, folder: DeviceFolder, *, answers: bool) -> None:
        """Answer for a device; one that does not answer holds its lease until the deadline."""
        self._folder = folder
        self._answers = answers
        self._identity = Identity.load(folder.identity)
        self._payload = memoryview(b"")
        self._vector: NDArray[np.int32] | None = None

    async def run(self, job: Job) -> Outcome:
        """Open the model, make up an update and seal it, as the child process does."""
        if not self._answers:
            await asyncio.Event().wait()
        plan = decode_plan(job.plan)
        schema = schema_of(plan.model)
        try:
            self._open(job, plan, schema)
        except UnsealError as error:
            # Begun with a coordinator that ended, and gone on with the next one's: fetched anew.
            return Failed(code=RefusalCode.UNSEAL_FAILED, reason=str(error))
        context = _context(job, plan.run, schema, Direction.UPLINK)
        if isinstance(plan.privacy, MaskedNoise):
            return self._sealed(job, self._masked(job, plan, context), context, example_count=0)
        received = decode(schema, self._payload)
        share = np.float32(0.001 * int(job.client_name.rpartition("-")[2]))
        # The received header fits the update too, and the elements are changed where they lie.
        elements = np.frombuffer(
            self._payload, np.float32, offset=len(self._payload) - received.nbytes
        )
        np.multiply(received, share, out=elements)
        return self._sealed(job, self._payload, context, example_count=100)

    def _sealed(
        self, job: Job, payload: memoryview, context: MessageContext, *, example_count: int
    ) -> Trained:
        message = seal(
            payload,
            context,
            sender=self._identity,
            recipient=read_certificate(self._folder.coordinator().wrapping),
        )
        write_chunks_atomically(Path(job.sealed_update), message.views(), flush=False)
        return Trained(example_count=example_count, message_id=message.message_id)

    def _masked(self, job: Job, plan: Plan, context: MessageContext) -> memoryview:
        if self._vector is None:
            layout = masked_layout(plan)
            values = np.full(layout.noised_count, 1e-6)
            values[layout.weights] = layout.weight_entry
            rotate(values)
            self._vector = np.ones(layout.element_count, np.int32)
            self._vector[: layout.noised_count] = np.rint(values / layout.grid.step)
        return masked_payload(
            plan,
            self._vector,
            context,
            attempt=job.attempt,
            device=self._identity,
            helper=read_certificate(job.helper_certificate or b""),
        )

    def _open(self, job: Job, plan: Plan, schema: Schema) -> None:
        if len(self._payload) != payload_size(schema):
            self._payload = memoryview(bytearray(payload_size(schema)))
        opener = Opener(
            _context(job, plan.run, schema, Direction.DOWNLINK),
            payload_bytes=len(self._payload),
            recipient=self._identity,
            sender=read_certificate(self._folder.coordinator().signing),
            into=self._payload,
        )
        with Path(job.sealed_model).open("rb", buffering=0) as file:
            opener.feed_file(file)
        opener.finish()

    async def close(self) -> None:
        """Hold nothing."""


class AlwaysReady:
    """Know that the device may work."""

    def read(self) -> Reading:
        """Return what allows everything."""
        return Reading(is_charging=True, is_idle=True, is_unmetered=True)


def _context(job: Job, run: str, schema: Schema, direction: Direction) -> MessageContext:
    up = direction is Direction.UPLINK
    return MessageContext(
        direction=direction,
        run=bytes.fromhex(run),
        round_number=job.round_number,
        slot=job.slot if up else 0,
        lease_nonce=job.lease_nonce if up else bytes(16),
        base_sha256=job.base_sha256,
        schema_sha256=schema.sha256,
        plan_sha256=plan_digest(job.plan) if up else NO_PLAN,
        deadline_ms=job.deadline_ms if up else 0,
    )


async def serve(folder: DeviceFolder, *, answers: bool) -> None:
    """Run the agent until it is stopped."""
    enrolment = folder.enrolment()
    device = Device(
        folder=folder,
        client_name=enrolment.client_name,
        data=folder.path,
        compute="cpu",
        floor=read_floor(folder.floor),
        trainer=IdleTrainer(folder, answers=answers),
        traffic=Traffic(folder.path / "traffic.json"),
    )
    agent = Agent(
        device,
        addresses=enrolment.device_addresses,
        policy=PolicySettings(),
        sensors=AlwaysReady(),
        clock=time.time,
    )
    running = asyncio.ensure_future(agent.run(once=False))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def main() -> None:
    """Serve one device folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--never-answer", action="store_true", help="take leases and keep them")
    parser.add_argument("--verbose", action="store_true", help="log each step, as the product does")
    arguments = parser.parse_args()
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO)
    os.umask(0o077)
    folder = DeviceFolder(arguments.folder)
    asyncio.run(serve(folder, answers=not arguments.never_answer))


if __name__ == "__main__":
    main()
