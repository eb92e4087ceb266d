"""Do what ``sotto-server``'s commands ask for, without printing anything."""

import dataclasses
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from models.plan.stages import describe_stage
from models.settings.growth import growth_stage
from privacy.accounting.accountant import Reports, reports
from privacy.accounting.ledger_file import LedgerFile
from privacy.identities.helper_admission import HelperCertificates, HelperRequest
from privacy.identities.issuing_key import load_issuer
from privacy.identities.party import Identity
from privacy.noise.plan_events import budget_of
from protos import federation_pb2 as pb
from protos.version import VERSION
from server.config.federation import FederationConfig, read_config
from server.devices.clients import ClientSummary, list_clients, revoke_client
from server.devices.forgetting import forget_client
from server.operating.admin_socket import admin_socket
from server.operating.leading import leader_elsewhere, out_of_service, told
from server.operating.report import StatusReport, from_answer
from server.records.attempts import current_attempt, next_attempt
from server.records.contributions import bytes_by_round
from server.records.folder import ServerFolder
from server.records.inbox import Inbox
from server.records.ledger import ledger_entries, ledger_events
from server.records.lock import AlreadyRunningError
from server.records.operator_switch import OperatorSwitch
from server.records.store import Store, check_run, open_store
from server.records.tenure import Tenure
from server.releases.files import ReleaseFolder
from server.releases.publishing import ReleaseSummary, list_releases
from server.releases.recovery import finish_release
from server.services.admin_client import NotRunningError, admin_stub
from server.services.standby import STANDBY

_PROBE_S = 5.0


class Federation:
    """A federation's folder for one command."""

    def __init__(self, root: Path) -> None:
        """Read its settings.

        Raises:
            ConfigError: If the folder holds no federation, or its settings cannot be used.
        """
        self.folder = ServerFolder(root.absolute())
        self.config: FederationConfig = read_config(self.folder.config)
        self.socket = admin_socket(self.folder, self.config)

    def status(self) -> StatusReport:
        """Return where the run stands, whether or not it is served now, and where."""
        with self._store() as (store, run):
            report = self._status(store, run)
            leader = leader_elsewhere(self.config, store)
        if leader is None:
            return report
        phase = "elsewhere" if report.phase == "stopped" else report.phase
        since = _iso(leader.since)
        return msgspec.structs.replace(
            report, phase=phase, leader=leader.holder, leads_since=since, term=leader.term
        )

    def leads_here(self) -> bool:
        """Return whether the coordinator of this machine leads, rather than stands by.

        Raises:
            NotRunningError: If none runs here.
            AdminCallError: If it does not answer.
        """
        with admin_stub(self.socket) as stub:
            return stub.Status(pb.StatusRequest(), timeout=_PROBE_S).phase != STANDBY

    def _status(self, store: Store, run: str) -> StatusReport:
        try:
            with admin_stub(self.socket) as stub:
                answer = stub.Status(pb.StatusRequest())
        except NotRunningError:
            return self._unserved(store, run, "stopped")
        if answer.phase == STANDBY:
            return self._unserved(store, run, STANDBY)
        return from_answer(
            answer,
            self._shown_clients(store),
            self._certificates_end_at(),
            self._issuer_ends_at(),
        )

    def rounds(self, first_round: int) -> list[ReleaseSummary]:
        """List released rounds, oldest first."""
        with self._store() as (store, _):
            return list_releases(store, first_round)

    def update_bytes(self) -> dict[int, int]:
        """Return the bytes of the updates that counted, by round; empty under a guarantee."""
        with self._store() as (store, _):
            return bytes_by_round(store)

    def pause(self) -> None:
        """Open no new round, now or at the next start."""
        try:
            with admin_stub(self.socket) as stub:
                stub.Pause(pb.PauseRequest())
        except NotRunningError:
            self._refuse_beside_a_leader()
            OperatorSwitch(self.folder.pause_mark).pause()

    def resume(self) -> None:
        """Open rounds again."""
        try:
            with admin_stub(self.socket) as stub:
                stub.Resume(pb.ResumeRequest())
        except NotRunningError:
            self._refuse_beside_a_leader()
            OperatorSwitch(self.folder.pause_mark).resume()

    def drain(self) -> None:
        """Let the running coordinator finish its round and stop.

        Raises:
            NotRunningError: If none runs.
            AlreadyRunningError: If one leads on another machine.
        """
        try:
            with admin_stub(self.socket) as stub:
                stub.Drain(pb.DrainRequest())
        except NotRunningError:
            self._refuse_beside_a_leader()
            raise

    def revoke(self, client: str) -> None:
        """Withdraw a device's certificates and the invites that it has not used.

        Raises:
            UnknownClientError: If no such device is enrolled or invited.
            AdminCallError: The same, from a running coordinator.
        """
        try:
            with admin_stub(self.socket) as stub:
                stub.Revoke(pb.RevokeRequest(client_name=client))
        except NotRunningError:
            self._refuse_beside_a_leader()
            with self._store() as (store, _):
                revoke_client(store, client, now=time.time())

    def forget(self, client: str) -> int:
        """Revoke a device and delete what is known of it; return how many updates that were.

        Raises:
            UnknownClientError: If there is no such device.
            AdminCallError: The same, from a running coordinator.
            AlreadyRunningError: If a coordinator is starting this moment, or leads elsewhere.
        """
        try:
            with admin_stub(self.socket) as stub:
                answer = stub.Forget(pb.ForgetRequest(client_name=client))
                return answer.deleted_updates
        except NotRunningError:
            return self._forget_here(client)

    def _forget_here(self, client: str) -> int:
        # Here, because they import torch, which takes a second.
        from server.releases.erasing import erase_client
        from server.releases.method_state import method_state_of

        with self._out_of_service() as tenure, self._store() as (store, _):
            store.lead(tenure)
            inbox, now = Inbox(self.folder.updates, tenure=tenure), time.time()
            deleted = forget_client(store, inbox, client, now=now)
            releases = ReleaseFolder(self.folder.releases, tenure)
            finish_release(store, releases, now)
            fresh = partial(method_state_of, self.config)
            erase_client(releases, client, fresh, Identity.load(self.folder.identity))
            return deleted

    def rotate_keys(self, hostnames: list[str]) -> None:
        """Replace the coordinator's keys.

        Raises:
            AlreadyRunningError: If a coordinator serves the folder, on any machine.
        """
        from server.operating.renaming import rotate_keys

        with self._out_of_service():
            rotate_keys(self.folder, self.config, hostnames)

    def rotate_issuing_key(self, key_file: Path | None, passphrase: bytes | None) -> str:
        """Replace the issuing key and the coordinator's keys; return when the new one ends.

        Raises:
            AlreadyRunningError: If a coordinator serves the folder, on any machine.
            FoundingError: If the authority's key is not there.
        """
        from server.operating.authorities import rotate_issuing_key

        with self._out_of_service():
            issuer = rotate_issuing_key(
                self.folder, self.config, key_file=key_file, passphrase=passphrase
            )
        return _iso(issuer.ends_at)

    def replace_authority(
        self, key_file: Path | None, passphrase: bytes | None, new_passphrase: bytes | None
    ) -> str:
        """Move the federation to a new authority; return its fingerprint, hex.

        Raises:
            AlreadyRunningError: If a coordinator serves the folder, on any machine.
            FoundingError: If the authority's key is not there, or an earlier one still is.
        """
        from server.operating.authorities import replace_authority

        with self._out_of_service(), self._store() as (_, run):
            issuer = replace_authority(
                self.folder,
                self.config,
                run,
                key_file=key_file,
                passphrase=passphrase,
                new_passphrase=new_passphrase,
            )
        return issuer.fingerprint.hex()

    def admit_helper(
        self, request: Path, key_file: Path | None, passphrase: bytes | None
    ) -> tuple[HelperRequest, HelperCertificates]:
        """Certify a helper and keep its certificates; return the request and them.

        Raises:
            FoundingError: If the authority's key is not there.
            CertificateError: If the request is none, or for another authority.
        """
        from server.operating.authorities import admit_helper

        return admit_helper(self.folder, request, key_file=key_file, passphrase=passphrase)

    def _out_of_service(self) -> AbstractContextManager[Tenure]:
        return out_of_service(self.folder, self.config)

    def _refuse_beside_a_leader(self) -> None:
        """Raise AlreadyRunningError if a coordinator leads on another machine."""
        with self._store() as (store, _):
            leader = leader_elsewhere(self.config, store)
        if leader is not None:
            raise AlreadyRunningError(f"{told(leader)}; run the command there")

    def _certificates_end_at(self) -> str:
        return _iso(Identity.load(self.folder.identity).ends_at)

    def _issuer_ends_at(self) -> str:
        return _iso(load_issuer(self.folder.authority).ends_at)

    @contextmanager
    def _store(self) -> Iterator[tuple[Store, str]]:
        store = open_store(self.config.store)
        try:
            yield store, check_run(store, self.config.seed, self.config.run_digest)
        finally:
            store.close()

    def _shown_clients(self, store: Store) -> list[ClientSummary]:
        """Return the devices for the operator, without their round counts under a guarantee."""
        clients = list_clients(store)
        if not self.config.privacy.guarantees_privacy:
            return clients
        return [dataclasses.replace(client, participation_count=None) for client in clients]

    def ledger(self) -> tuple[LedgerFile, Reports | None]:
        """Return the run's ledger, checked, and what it spent against each onlooker.

        None where nothing is promised.

        Raises:
            AccountantsDisagreeError: If two accountants differ by more than rounding.
            LedgerError: If the ledger was changed, lost its end or belongs to another run.
        """
        budget = budget_of(self.config.privacy)
        published = ReleaseFolder(self.folder.releases).newest_head()
        with self._store() as (store, run):
            events = ledger_events(store, run, published)
            entries = ledger_entries(store)
        spent = None if budget is None else reports(events, budget.delta)
        return LedgerFile(run=run, entries=entries), spent

    def _growth(self, round_number: int) -> str:
        growth = self.config.growth
        return "" if growth is None else describe_stage(growth, growth_stage(growth, round_number))

    def _unserved(self, store: Store, run: str, phase: str) -> StatusReport:
        """Return what the store and the folder tell of a run that nobody serves here."""
        opened = current_attempt(store)
        round_number = next_attempt(store)[0] if opened is None else opened.round_number
        clients = self._shown_clients(store)
        return StatusReport(
            run=run,
            is_running=phase == STANDBY,
            phase=phase,
            round_number=round_number,
            is_paused=OperatorSwitch(self.folder.pause_mark).is_paused,
            guarantee=self.config.privacy.guarantee,
            personalisation=self.config.travel,
            growth=self._growth(round_number),
            enrolled_clients=sum(client.revoked_at is None for client in clients),
            software_version=VERSION,
            certificates_end_at=self._certificates_end_at(),
            issuer_ends_at=self._issuer_ends_at(),
            clients=clients,
        )


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="minutes")
