"""Put a coordinator together from its folder and let it serve until it is told to stop."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import torch

from models.text.vocabulary import Vocabulary
from privacy.foundation.full_disk import naming_the_disk
from privacy.foundation.secure_source import SecureSource
from privacy.foundation.shortages import raise_descriptor_limit
from privacy.identities.authority import CertificateAuthority
from privacy.identities.issuing_key import load_issuer
from privacy.identities.party import Identity
from privacy.identities.succession import read_former
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.plan_events import sampled_places
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys
from server.budget.noised_evaluations import NoisedEvaluations
from server.budget.round_gate import RoundGate
from server.config.federation import FederationConfig
from server.config.fitting import fit_kind
from server.config.listen import ListenSettings
from server.config.plans import make_plan
from server.coordinating.coordinator import Coordinator
from server.coordinating.desk import DeviceDesk
from server.coordinating.device_evaluation import DeviceEvaluation
from server.coordinating.fits import Fits
from server.coordinating.keeper import RoundKeeper
from server.coordinating.key_renewal import KeyRenewal
from server.coordinating.work import Work
from server.devices.dispatcher import Dispatcher
from server.devices.membership import Membership
from server.downlink.model_shelf import ModelShelf
from server.downlink.personal_shelf import PersonalShelf
from server.machine.nonces import derived_nonces
from server.machine.rounds import RoundMachine
from server.operating.admin_socket import admin_socket
from server.operating.arrivals import Arrivals, masked_arrivals, opened_arrivals
from server.operating.leading import in_turn
from server.operating.stopping import stopping_on_signals
from server.records.failpoints import UNARMED, Failpoints
from server.records.folder import ServerFolder, take_parts, take_uploads
from server.records.inbox import Inbox
from server.records.operator_switch import OperatorSwitch
from server.records.store import Store, check_run
from server.records.threads import Threads
from server.records.tree_keys import noise_keys_of
from server.releases.files import ReleaseFolder
from server.releases.method_state import method_state_of
from server.releases.metrics_log import MetricsLog
from server.releases.public_evaluation import PublicText
from server.releases.storage import Storage
from server.services.admin import AdminService
from server.services.crowds import hand_back_after_crowds
from server.services.devices import FederationService
from server.services.enrolment import EnrolmentService
from server.services.federation_calls import CallsUnderWay
from server.services.listeners import (
    ServerTls,
    device_connections,
    open_admin,
    open_devices,
    open_enrolment,
)
from server.services.metrics import CoordinatorMetrics
from server.services.metrics_page import open_metrics
from server.uplink.acceptance import Intake
from server.uplink.receiving import UploadDesk

_LOG = logging.getLogger(__name__)
_THREADS = 8
# Streams get this long to end by themselves when the coordinator stops.
_GRACE_S = 1.0


@dataclass(frozen=True)
class Ports:
    """The coordinator's open ports; ``metrics`` is None where none is asked for."""

    enrolment: int
    devices: int
    metrics: int | None


async def serve(
    folder: ServerFolder,
    config: FederationConfig,
    *,
    listen: ListenSettings | None = None,
    failpoints: Failpoints = UNARMED,
    noise_keys: NoiseKeys | None = None,
    on_ready: Callable[[Ports], None],
) -> None:
    """Serve until the operator drains the coordinator or a signal asks it to stop.

    Where several coordinators share a store, stand by until this one leads. ``listen`` are the
    addresses on this machine, if they are not those of the settings.

    SIGTERM drains: the running round is finished first. SIGINT, or a second SIGTERM, stops at once;
    the next start goes on with the round. ``failpoints`` and ``noise_keys``, which repeat
    calibrated noise, are for tests. ``on_ready`` is called when all listeners are open.

    Raises:
        AlreadyRunningError: If another process serves this folder, and may not share it.
        LedgerError: If the privacy ledger was changed or belongs to another run.
        StoreError: If the store does not fit the settings.
        KeyFileError: If a key is missing or readable by others.
        ListenError: If an address is taken.
        FullDiskError: If the disk is full at the start; later a round waits for room.
    """
    # One thread an operation: sums are the same to the bit on every machine, and in simulation.
    torch.set_num_threads(1)
    listen = listen or config.listen
    again = (
        f"`sotto-server run {folder.root}` again: it goes on with the round, and every update that "
        "was acknowledged is kept"
    )
    with (
        naming_the_disk(folder.root, again=again),
        ThreadPoolExecutor(_THREADS) as executor,
    ):
        async with in_turn(folder, config, listen) as store:
            if store is None:
                return
            run = check_run(store, config.seed, config.run_digest)
            parts = _Parts(
                folder,
                config,
                run,
                store=store,
                noise_keys=noise_keys or noise_keys_of(folder, store, config, run),
                evaluation_keys=noise_keys or SystemKeys(),
                threads=Threads(executor),
                failpoints=failpoints,
            )
            await parts.serve(listen, on_ready)


class _Parts:
    """The parts of one coordinator, made in the order in which they need each other."""

    def __init__(
        self,
        folder: ServerFolder,
        config: FederationConfig,
        run: str,
        *,
        store: Store,
        noise_keys: NoiseKeys,
        evaluation_keys: NoiseKeys,
        threads: Threads,
        failpoints: Failpoints,
    ) -> None:
        self._folder = folder
        self._config = config
        self._run = run
        self._storage = storage = Storage(
            store,
            Inbox(folder.updates, failpoints, store.tenure),
            ReleaseFolder(folder.releases, store.tenure),
            MetricsLog(folder.metrics),
            threads,
            failpoints,
        )
        # Keys, and the parts that follow them when they are renewed.
        identity = Identity.load(folder.identity)
        issuer = load_issuer(folder.authority)
        self._renewal = KeyRenewal(folder, config, identity, issuer, threads)
        self._tls = ServerTls(identity, read_former(folder.authority))
        self._vocabulary = config.load_vocabulary()
        self._membership = Membership(store, issuer, identity, threads)
        self._switch = OperatorSwitch(folder.pause_mark)
        # The models that devices fetch: everybody's, and each one's own.
        self._method = method_state_of(config)
        self._arrivals = self._make_arrivals(identity, issuer, noise_keys)
        self._shelf = self._make_shelf()
        self._personal = PersonalShelf(
            config,
            run,
            method=self._method,
            releases=storage.releases,
            parts=take_parts(folder, store.tenure),
            identity=identity,
            threads=threads,
        )
        parts = (self._tls, self._arrivals.opener, self._membership, self._shelf, self._personal)
        for part in parts:
            self._renewal.tell(part.take_identity)
        # The parts that drive rounds, from the top of the house down.
        self._gate = RoundGate(config, store, run, published=storage.releases.newest_head)
        self._keeper = RoundKeeper(
            self._shelf,
            self._personal,
            storage,
            closer=self._arrivals.closer,
            gate=self._gate,
            evaluations=NoisedEvaluations(config, store, run, evaluation_keys, failpoints),
            helper_certificate=self._arrivals.helper_certificate,
        )

    async def serve(self, listen: ListenSettings, on_ready: Callable[[Ports], None]) -> None:
        self._renewal.warn_of_the_end()
        if self._renewal.is_due:
            await self._renewal.renew()
        recovered = await self._keeper.start()
        await self._keeper.announce(recovered.round_number, recovered.attempt)
        if helper := await self._arrivals.closer.helper_told():
            _LOG.info("helper: %s", helper)
        machine = RoundMachine(
            self._config.rounds,
            SecureSource(),
            round_number=recovered.round_number,
            attempt=recovered.attempt,
            draw_nonce=derived_nonces(self._folder.lease_secret.read_bytes()),
            sampled_places=sampled_places(self._config.rounds, self._config.privacy),
            limits_who_comes=self._gate.limits_who_comes,
        )
        restored = await self._keeper.take_up(machine, recovered)
        if self._shelf.has_converged and restored is None:
            machine.finish()
        desk, coordinator = self._make_coordinator(machine)
        running = asyncio.create_task(coordinator.run(restored))
        with stopping_on_signals(coordinator, running):
            async with self._listening(desk, coordinator, listen) as ports:
                on_ready(ports)
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    def _make_arrivals(
        self, identity: Identity, issuer: CertificateAuthority, noise_keys: NoiseKeys
    ) -> Arrivals:
        config, storage = self._config, self._storage
        # Any plan of the run's; each round's own has its cohort.
        size = config.rounds.cohort_size or config.rounds.quorum
        plan = make_plan(config, self._run, cohort_size=size, vocabulary=self._vocabulary)
        if isinstance(config.privacy, MaskedNoise):
            return masked_arrivals(self._folder, config, plan, identity, storage, issuer=issuer)
        return opened_arrivals(
            config, plan, identity, storage, method=self._method, noise_keys=noise_keys
        )

    def _make_shelf(self) -> ModelShelf:
        return ModelShelf(
            self._config,
            self._run,
            self._vocabulary,
            storage=self._storage,
            identity=self._renewal.identity,
            method=self._method,
            public_text=_public_text(self._config, self._vocabulary),
            on_stage=self._arrivals.take_stage,
        )

    def _make_coordinator(self, machine: RoundMachine) -> tuple[DeviceDesk, Coordinator]:
        changed = asyncio.Event()
        intake = Intake(
            machine,
            self._storage,
            uploads=UploadDesk(
                take_uploads(self._folder, self._storage.store.tenure), self._storage.threads
            ),
            opener=self._arrivals.opener,
            membership=self._membership,
            changed=changed,
        )
        evaluation = DeviceEvaluation(
            self._config.evaluation,
            SecureSource(),
            rounds=self._config.rounds,
            privacy=self._config.privacy,
        )
        work = Work(machine, intake, evaluation, self._make_fits())
        dispatcher = Dispatcher(work.order_for, self._storage.failpoints)
        desk = DeviceDesk(work, dispatcher, self._membership, self._switch, changed)
        return desk, Coordinator(
            work,
            desk,
            dispatcher,
            shelf=self._shelf,
            keeper=self._keeper,
            membership=self._membership,
            renewal=self._renewal,
            switch=self._switch,
        )

    def _make_fits(self) -> Fits | None:
        fitting = self._config.fitting
        if fitting is None:
            return None
        kind = fit_kind(self._config.personalisation)
        fits = Fits(
            fitting.deadline_s,
            SecureSource().bytes,
            self._renewal.identity,
            has_embedding=self._keeper.has_embedding if kind == "fit_embedding" else None,
            keep=self._keeper.adopt,
            signing_keys=self._membership.signing_keys,
        )
        self._renewal.tell(fits.take_identity)
        return fits

    @contextlib.asynccontextmanager
    async def _listening(
        self, desk: DeviceDesk, coordinator: Coordinator, listen: ListenSettings
    ) -> AsyncIterator[Ports]:
        service = FederationService(desk, self._membership, self._config, self._vocabulary)
        enrolment = EnrolmentService(self._membership, self._run)
        admin = AdminService(coordinator, self._storage.store, self._storage.threads, self._run)
        opened: list[grpc.aio.Server] = []
        try:
            grpc_server, devices_port = await open_devices(
                service,
                listen.devices,
                self._tls,
                calls=CallsUnderWay(self._membership),
                connections=device_connections(raise_descriptor_limit()),
            )
            opened.append(grpc_server)
            grpc_server, enrolment_port = await open_enrolment(
                enrolment, listen.enrolment, self._tls
            )
            opened.append(grpc_server)
            opened.append(await open_admin(admin, admin_socket(self._folder, self._config)))
            watching = asyncio.create_task(hand_back_after_crowds(self._storage.threads))
            metrics = CoordinatorMetrics(self._folder.root, self._config.privacy, coordinator)
            try:
                async with open_metrics(listen, metrics) as metrics_port:
                    yield Ports(enrolment_port, devices_port, metrics_port)
            finally:
                watching.cancel()
        finally:
            await asyncio.gather(*(grpc_server.stop(_GRACE_S) for grpc_server in opened))


def _public_text(config: FederationConfig, vocabulary: Vocabulary | None) -> PublicText | None:
    path = config.evaluation.public_text
    # The settings see to it that only a task with words has a public text.
    return None if path is None or vocabulary is None else PublicText(Path(path), vocabulary)
