"""A federation whose coordinator opens no update: with its helper, and devices that mask."""

import asyncio
import dataclasses
import hashlib
import logging
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from models.masked.layout import MaskedLayout, mask_form, masked_layout
from models.masked.payload import encode_payload
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan
from models.settings.model import schema_of
from models.vector.codec import FlatVector
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertifiedKey, certificate_pem, read_certificate
from privacy.identities.helper_admission import (
    certify_helper,
    read_helper_request,
    write_helper_file,
)
from privacy.masking.helper_answer import SignedAnswer, read_answers
from privacy.masking.keystream import add_keystream
from privacy.masking.packing import pack
from privacy.masking.rotation import rotate
from privacy.noise.masked_settings import MaskedNoise
from privacy.sealing.envelope import Direction, seal
from protos import federation_pb2 as pb
from server.closing.close import Closing
from server.closing.masked_close import close_masked
from server.closing.masked_totals import MaskedTotals
from server.config.plans import make_plan
from server.helper.folder import HelperFolder, admit_helper, found_helper
from server.helper.settings import HelperSettings
from tests.forking import CONTEXT
from tests.integration.device import Device, enrol_as, plan_of
from tests.integration.federation import Federation, free_ports, settings

# Noise so small that a model shows what was summed; the budgets are as large.
_PRIVACY = """
noise_multiplier = 1e-3
delta = 1e-3
epsilon_budget = 1e9
coordinator_epsilon_budget = 1e9
adjacency = "zero-out"
honest_share = 1.0
{more}
"""
START_S = 60.0


def masked_settings(helper_port: int, *, more_privacy: str = "", **changes: object) -> str:
    """Return the TOML of a small federation in mode ``masked`` with its helper on a port."""
    tables = f'[helper]\naddress = "127.0.0.1:{helper_port}"\n'
    text = settings(
        more_privacy=_PRIVACY.format(more=more_privacy),
        tables=tables + str(changes.pop("tables", "")),
        **{"rule": 'rule = "mean"\nweighting = "equal"', "clipping_norm": 1.0, **changes},
    )
    return text.replace('mode = "none"', 'mode = "masked"')


class Helper:
    """A helper's folder and, between ``start`` and ``stop``, its process."""

    def __init__(
        self, root: Path, federation: Federation, port: int, *, least_contributors: int = 2
    ) -> None:
        self.folder = HelperFolder(root)
        self.log = root.parent / f"{root.name}.log"
        self.process: BaseProcess | None = None
        authority = CertificateAuthority.load(federation.folder.authority)
        pem = root.parent / f"{root.name}-authority.pem"
        pem.write_bytes(certificate_pem(authority.certificate))
        limits = HelperSettings(
            listen=f"127.0.0.1:{port}",
            least_contributors=least_contributors,
            largest_rounds_a_day=100,
        )
        found_helper(self.folder, pem, ["127.0.0.1"], limits)
        certified = certify_helper(authority, read_helper_request(self.folder.request))
        self.certificates = root.parent / f"{root.name}.json"
        write_helper_file(self.certificates, certified)
        admit_helper(self.folder, self.certificates, now=time.time())

    def start(self, failpoint: str | None = None, *, clock_error_s: float = 0.0) -> None:
        """Start it and wait until it listens."""
        ours, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(
            target=_serve, args=(self.folder.root, self.log, failpoint, clock_error_s, theirs)
        )
        self.process.start()
        theirs.close()
        with ours:
            assert ours.poll(START_S), "the helper does not listen"
            ours.recv()

    def wait_killed(self) -> None:
        """Wait until it has died of its failpoint."""
        assert self.process is not None
        self.process.join(100)
        assert self.process.exitcode == -signal.SIGKILL, self.log.read_text()

    def stop(self) -> None:
        """Kill it, as by a power cut, if it runs."""
        if self.process is not None and self.process.is_alive():
            self.process.kill()
            self.process.join()

    def answers(self) -> list[SignedAnswer]:
        """Return what it answered, oldest first."""
        return self.folder.open_answers(self.folder.read_settings()).listed()


class MaskedFederation(Federation):
    """A federation in mode ``masked`` with its helper."""

    devices: list["MaskedDevice"]  # type: ignore[assignment]

    def __init__(self, root: Path, **changes: object) -> None:
        (port,) = free_ports(1)
        least = int(str(changes.pop("least_contributors", 2)))
        super().__init__(root, masked_settings(port, **changes))  # type: ignore[arg-type]
        self.helper = Helper(
            root.parent / f"{root.name}-helper", self, port, least_contributors=least
        )
        self.folder.helper.write_bytes(self.helper.certificates.read_bytes())

    def enrol(self, count: int) -> list["MaskedDevice"]:  # type: ignore[override]
        new = []
        for invite in self.invite(count):
            identity = self.root.parent / f"{self.root.name}-{invite.stem}"
            new.append(enrol_as(MaskedDevice, invite, identity))
        self.devices += new
        return new

    def kept_answers(self) -> list[SignedAnswer]:
        """Return the helper's answers that the coordinator kept."""
        return read_answers(self.folder.helper_answers)

    def stop(self) -> None:
        super().stop()
        self.helper.stop()

    def expected_digest(self, names: list[str], rounds: int) -> str:
        """Sum the devices' made-up updates on their grid in this process, without masks."""
        torch.set_num_threads(1)
        config = self.config
        parameters = initial_parameters(config.model, config.seed)
        plan = make_plan(config, "0" * 32, cohort_size=config.rounds.cohort_size)
        assert isinstance(plan.privacy, MaskedNoise)
        layout = masked_layout(plan)
        for round_number in range(1, rounds + 1):
            totals = MaskedTotals(layout, plan.privacy.groups)
            for slot, name in enumerate(sorted(names)):
                vector = on_grid(layout, plan, made_up(plan, round_number, name))
                totals.add(slot, vector.astype(np.uint32))
            closing = Closing(
                schema=schema_of(config.model),
                aggregation=config.aggregation,
                privacy=plan.privacy,
                slot_count=len(names),
                generator=torch.Generator(),
            )
            parameters = close_masked(parameters, totals.unmasked(), layout, closing).parameters
        return hashlib.sha256(parameters.numpy().data).hexdigest()


class MaskedDevice(Device):
    """A device on the wire that masks its made-up update, without noise.

    Attributes:
        is_wrong: Whether the seed that it gives the helper is another than that of its mask.
    """

    is_wrong = False

    def seal_update(self, lease: pb.Lease, update: FlatVector | None = None) -> tuple[bytes, bytes]:
        plan = plan_of(lease)
        flat = made_up(plan, lease.round_number, self.name) if update is None else update
        return self.seal_vector(lease, on_grid(masked_layout(plan), plan, flat))

    def seal_vector(
        self,
        lease: pb.Lease,
        vector: NDArray[np.int64],
        *,
        attempt: int | None = None,
        helper: CertifiedKey | None = None,
    ) -> tuple[bytes, bytes]:
        """Mask a vector and seal it; its seed for another attempt or helper, if one is given."""
        plan, seed = plan_of(lease), os.urandom(32)
        assert isinstance(plan.privacy, MaskedNoise)
        layout = masked_layout(plan)
        form = mask_form(plan, layout, lease.attempt if attempt is None else attempt)
        masked = vector.astype(np.uint32)
        add_keystream(masked, seed, bits=layout.grid.bits)
        context = self.uplink_context(lease)
        sealed = seal(
            os.urandom(32) if self.is_wrong else seed,
            dataclasses.replace(context, direction=Direction.MASK_SEED, schema_sha256=form.sha256),
            sender=self.identity,
            recipient=helper or read_certificate(lease.helper_certificate),
        )
        packed = pack(masked, layout.grid.bits)
        payload = encode_payload(layout, packed, b"".join(map(bytes, sealed.views())))
        return self.seal_payload(payload, context)


def made_up(plan: Plan, round_number: int, name: str) -> FlatVector:
    """Return the update that a device makes up, within the clip."""
    from models.vector.seeds import client_seed

    count = schema_of(plan.model).element_count
    drawn = np.random.default_rng(client_seed(plan.seed, round_number, name)).normal(0, 1, count)
    return (drawn / np.linalg.norm(drawn) * 0.9).astype(np.float32)


def on_grid(layout: MaskedLayout, plan: Plan, update: FlatVector) -> NDArray[np.int64]:
    """Lay an update of full weight on the grid, rotated, each element rounded to the nearest."""
    assert plan.privacy.clipping_norm is not None
    values = np.zeros(layout.noised_count)
    values[: len(update)] = update / np.float64(plan.privacy.clipping_norm)
    values[layout.weights] = layout.weight_entry
    vector = np.ones(layout.element_count, np.int64)
    rotate(values)
    vector[: layout.noised_count] = np.rint(values / layout.grid.step)
    return vector


def _serve(
    root: Path,
    log: Path,
    failpoint: str | None,
    clock_error_s: float,
    ready: "Connection[None, None]",
) -> None:
    from server.helper.running import run_helper
    from server.helper.service import HelperService
    from server.records.failpoints import Failpoints

    logging.basicConfig(filename=log, level=logging.INFO)
    if clock_error_s:
        defaults = HelperService.__init__.__kwdefaults__ or {}
        defaults["clock"] = lambda: time.time() + clock_error_s

    def announce(_: int) -> None:
        ready.send(None)
        ready.close()

    asyncio.run(run_helper(HelperFolder(root), failpoints=Failpoints(failpoint), on_ready=announce))
