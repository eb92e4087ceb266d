"""The agent tries again, starts over, or stops and says what a person must do."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import edge_client.agent.agent as agent_module
import edge_client.agent.lease as lease_module
import edge_client.wire.coordinator_keys as coordinator_keys_module
from edge_client.agent.agent import Agent
from edge_client.agent.exit_status import NotServed
from edge_client.agent.session import Ended
from edge_client.datasets.text_set import DatasetError
from edge_client.folder.layout import CoordinatorKeys
from edge_client.jobs.job import Evaluated, Failed, Outcome, Trained
from edge_client.owner.policy import PolicySettings
from edge_client.owner.sensors import Reading
from edge_client.wire.refusal import FATAL_CODES, RefusedError, UnreachableError
from edge_client.wire.transport import Transport
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError
from privacy.identities.party import Identity
from privacy.identities.signing_requests import SigningRequests
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import (
    MESSAGE_ID,
    StandInTrainer,
    StandInTransport,
    make_device,
    make_lease,
    sign_lease,
)
from tests.privacy.conftest import NOW, RUN, enrol

DAY_S = 86_400
COUNTS = Evaluated(token_count=10, log_loss_sum=23.0, top1_hits=2, top3_hits=4)
TRAINED = Trained(example_count=12, message_id=MESSAGE_ID)


@dataclass(frozen=True)
class Enrolled:
    """Hold what enrolment leaves on a device, and the authority behind it."""

    authority: CertificateAuthority
    identity: Path
    coordinator: Identity


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    folder = tmp_path_factory.mktemp("enrolled")
    authority = CertificateAuthority.create(folder / "authority", RUN.hex(), now=NOW)
    enrol(authority, folder / "identity", "device-0001", "device")
    coordinator = enrol(authority, folder / "coordinator", "coordinator", "coordinator")
    return Enrolled(authority, folder / "identity", coordinator)


class FakeSensors:
    """Tell of a device that is put on its charger after some readings."""

    def __init__(self, readings_before_charging: int = 0) -> None:
        self.readings = 0
        self._before = readings_before_charging

    def read(self) -> Reading:
        self.readings += 1
        return Reading(is_charging=self.readings > self._before)


class RenewingTransport(StandInTransport):
    """Issue certificates as the coordinator does, and push one order down each stream.

    Attributes:
        met: The address of each connection.
    """

    def __init__(self, enrolled: Enrolled, now: float) -> None:
        super().__init__()
        self.one_a_stream: list[wire.WorkOrder] = []
        self.met: list[str] = []
        self.on_check_in: Callable[[], None] = lambda: None
        self._enrolled = enrolled
        self.now = now

    async def work_orders(
        self, request: wire.CheckInRequest
    ) -> AsyncGenerator[wire.WorkOrder, None]:
        self.orders = asyncio.Queue()
        self.on_check_in()
        if not self.unreachable and not self.refusals.get("check_in"):
            order = self.one_a_stream.pop(0)
            if order.HasField("lease"):
                sign_lease(order.lease, self._enrolled.coordinator, run=RUN.hex())
            self.orders.put_nowait(order)
        async for order in super().work_orders(request):
            yield order

    async def renew(self, requests: wire.SigningRequests) -> wire.RenewCertificatesResponse:
        self.calls.append(("renew",))
        asked = SigningRequests(requests.tls, requests.wrapping, requests.signing)
        authority = self._enrolled.authority
        given = authority.issue_all(asked, name="device-0001", role="device", now=self.now)
        coordinator = self._enrolled.coordinator.certificates
        return wire.RenewCertificatesResponse(
            device=wire.Certificates(tls=given.tls, wrapping=given.wrapping, signing=given.signing),
            coordinator=wire.Certificates(
                wrapping=coordinator.wrapping, signing=coordinator.signing
            ),
        )


class Scene:
    """Hold an agent whose clock and coordinator the test owns.

    Attributes:
        pauses: What the agent waited for between sessions.
    """

    def __init__(
        self,
        folder: Path,
        enrolled: Enrolled,
        outcome: Outcome | None = COUNTS,
        *,
        days: float = 0.0,
        sensors: FakeSensors | None = None,
    ) -> None:
        self.now = NOW + days * DAY_S
        self.transport = RenewingTransport(enrolled, self.now)
        self.trainer = StandInTrainer(outcome)
        self.device = make_device(folder, self.trainer)
        self.pauses: list[str] = []
        self.addresses = ["localhost:1"]
        self._enrolled = enrolled
        self._sensors = sensors or FakeSensors()
        shutil.copytree(enrolled.identity, self.device.folder.identity)
        keys = enrolled.coordinator.certificates
        self.device.folder.save_coordinator(CoordinatorKeys(**keys._asdict()))
        belonging = self.device.folder.enrolment()
        ca = enrolled.authority.certificate
        self.device.folder.save(
            msgspec.structs.replace(belonging, run=RUN.hex(), ca_certificate=ca)
        )

    def pass_to(self, *, days: float) -> None:
        """Let the clock of both ends show so many days after the enrolment."""
        self.now = self.transport.now = NOW + days * DAY_S

    def run(self, *orders: wire.WorkOrder, once: bool = True) -> Ended:
        """Run the agent; each of its streams brings the next of these orders."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lease_module, "time", SimpleNamespace(time=lambda: self.now))
            return asyncio.run(asyncio.wait_for(self._run(orders, once=once), 60))

    async def _run(self, orders: tuple[wire.WorkOrder, ...], *, once: bool) -> Ended:
        self.transport.one_a_stream = list(orders)
        agent = _Agent(
            self.device,
            addresses=self.addresses,
            policy=PolicySettings(idle=False, unmetered=False),
            sensors=self._sensors,
            clock=lambda: self.now,
        )
        agent.transport = self.transport
        return await agent.run(once=once)


class _Agent(Agent):
    """Speak to the coordinator of the test."""

    transport: RenewingTransport

    def _transport(self, identity: Identity, coordinator_tls: bytes) -> Transport:
        self.transport.met.append(self.addresses.current)
        return self.transport


@pytest.fixture(autouse=True)
def shown(enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note where the agent looks what the coordinator shows, and show it."""
    looked_at: list[str] = []

    async def show(address: str, own: object) -> list[bytes]:
        looked_at.append(address)
        return [enrolled.coordinator.certificates.tls]

    monkeypatch.setattr(coordinator_keys_module, "shown_certificates", show)
    return looked_at


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note why the agent pauses, and do not wait."""
    noted: list[str] = []

    async def pause(seconds: float, reason: str) -> None:
        assert seconds >= 0
        noted.append(reason)
        await asyncio.sleep(0)

    monkeypatch.setattr(agent_module, "_pause", pause)
    return noted


def lease(number: int = 1) -> wire.WorkOrder:
    return wire.WorkOrder(lease=make_lease(number=number))


def come_back(reason: str) -> wire.WorkOrder:
    return wire.WorkOrder(retry_after=wire.RetryAfter(reason=reason, seconds=5))


def test_one_lease_is_served_and_everything_is_put_away(tmp_path: Path, enrolled: Enrolled) -> None:
    scene = Scene(tmp_path, enrolled)
    (scene.device.folder.work / "left.model").touch()

    scene.run(lease())

    assert scene.transport.named == ["check_in", "fetch_model", "report", "closed"]
    assert scene.trainer.closed
    assert list(scene.device.folder.work.iterdir()) == []


def test_nothing_is_asked_before_the_device_may_work(
    tmp_path: Path, enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensors = FakeSensors(readings_before_charging=2)
    scene = Scene(tmp_path, enrolled, sensors=sensors)
    monkeypatch.setattr("edge_client.owner.policy._RECHECK_S", 0.0)

    scene.run(lease())

    # Two readings said no, the third yes; only then was there a stream.
    assert sensors.readings >= 3
    assert scene.transport.named == ["check_in", "fetch_model", "report", "closed"]


def test_a_coordinator_that_cannot_be_reached_is_tried_again(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str]
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.transport.unreachable = 3

    scene.run(lease())

    assert pauses == ["unavailable: as told"] * 3
    assert "report" in scene.transport.named


def test_a_stream_that_held_for_long_begins_the_waits_anew(
    tmp_path: Path, enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.transport.unreachable = 4
    held_s, waited = iter([0.0, 19.0, 21.0, 0.0, 0.0]), []

    async def pause(seconds: float, reason: str) -> None:
        waited.append(seconds)

    def hold() -> None:
        scene.now += next(held_s)

    scene.transport.on_check_in = hold
    monkeypatch.setattr(agent_module, "delays", lambda _: iter([0.25, 0.5, 1.0, 2.0]))
    monkeypatch.setattr(agent_module, "_pause", pause)

    scene.run(lease())

    assert waited == [0.25, 0.5, 0.25, 0.5]


@pytest.mark.parametrize(
    ("is_network", "expected"), [(True, [0.25] * 3), (False, [0.25, 0.5, 1.0])]
)
def test_waits_grow_with_failures_of_the_coordinator_and_not_with_breaks_in_mid_work(
    tmp_path: Path,
    enrolled: Enrolled,
    monkeypatch: pytest.MonkeyPatch,
    is_network: bool,
    expected: list[float],
) -> None:
    scene = Scene(tmp_path, enrolled)
    fetch, failures, waited = scene.transport.fetch_model, [1, 2, 3], list[float]()

    async def fetch_model(
        lease: wire.Lease,
        part: wire.ModelPart,
        total_bytes: int,
        target: Path,
        base_sha256: bytes = b"",
    ) -> None:
        if failures:
            failures.pop()
            raise UnreachableError("as told", is_network=is_network)
        await fetch(lease, part, total_bytes, target, base_sha256)

    async def pause(seconds: float, reason: str) -> None:
        waited.append(seconds)

    monkeypatch.setattr(scene.transport, "fetch_model", fetch_model)
    monkeypatch.setattr(agent_module, "delays", lambda _: iter([0.25, 0.5, 1.0, 2.0]))
    monkeypatch.setattr(agent_module, "_pause", pause)

    scene.run(*[lease()] * 4)

    assert waited == expected
    assert "report" in scene.transport.named


def test_come_back_later_is_obeyed_and_the_end_of_the_run_ends_the_agent(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str]
) -> None:
    scene = Scene(tmp_path, enrolled)

    scene.run(come_back("draining"), come_back("finished"))

    assert pauses == ["draining"]
    assert scene.transport.named == ["check_in", "closed"] * 2


A, B = "localhost:1", "127.0.0.1:1"


@pytest.fixture
def down(enrolled: Enrolled, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of addresses at which nobody answers: once for each time that one is in it."""
    absent: list[str] = []

    async def refuse(address: str, own: object) -> list[bytes]:
        shown.append(address)
        if address in absent:
            absent.remove(address)
            raise UnreachableError(f"{address} cannot be reached: as told", is_network=True)
        return [enrolled.coordinator.certificates.tls]

    monkeypatch.setattr(coordinator_keys_module, "shown_certificates", refuse)
    return absent


def test_a_device_stays_with_the_address_that_serves(
    tmp_path: Path, enrolled: Enrolled, shown: list[str], down: list[str], pauses: list[str]
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.addresses = [A, B]
    down.append(A)

    scene.run(come_back("draining"), come_back("draining"), lease())

    assert shown == [A, B, B, B]
    assert scene.transport.met == [B, B, B]
    # A dead first address is no failure that is waited for.
    assert pauses == ["draining", "draining"]


def test_a_device_goes_on_where_it_was_served_and_passes_over_what_never_served(
    tmp_path: Path, enrolled: Enrolled, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.addresses = [A, B]
    # It shows its certificate at A and takes no check-in, as one that is not done starting.
    scene.transport.unreachable = 1
    fetch, breaks = scene.transport.fetch_model, [UnreachableError("as told", is_network=True)]

    async def fetch_model(lease: wire.Lease, part: wire.ModelPart, *rest: Any) -> None:
        if breaks:
            raise breaks.pop()
        await fetch(lease, part, *rest)

    monkeypatch.setattr(scene.transport, "fetch_model", fetch_model)

    scene.run(lease(), lease())

    # The line broke in the middle of work at B: the same coordinator is likely to be there.
    assert shown == scene.transport.met == [A, B, B]
    assert "report" in scene.transport.named


def test_a_wait_follows_when_every_address_has_failed(
    tmp_path: Path, enrolled: Enrolled, shown: list[str], down: list[str], pauses: list[str]
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.addresses = [A, B]
    down += [A, B, A, B]

    scene.run(lease())

    said = [f"{address} cannot be reached: as told" for address in (A, B)]
    assert sorted(pauses) == sorted(
        f"no coordinator can be reached: {'; '.join(order)}" for order in (said, said[::-1])
    )
    assert "report" in scene.transport.named


def test_an_address_that_the_certificate_does_not_name_is_told_and_another_is_taken(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pause(seconds: float, reason: str) -> None:
        raise RuntimeError(reason)

    scene = Scene(tmp_path, enrolled)
    scene.addresses = ["elsewhere.test:1", B]
    scene.run(come_back("finished"))
    assert (scene.transport.met, pauses) == ([B], [])

    scene.addresses = ["elsewhere.test:1", "[::1]:1"]
    monkeypatch.setattr(agent_module, "_pause", pause)
    with pytest.raises(RuntimeError) as told:
        scene.run()

    assert "must name elsewhere.test, got localhost, 127.0.0.1; its operator" in str(told.value)
    assert "must name ::1, got localhost" in str(told.value)


@pytest.mark.parametrize("code", sorted(FATAL_CODES))
def test_what_a_person_must_mend_ends_the_agent(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str], code: str
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.transport.refusals["check_in"] = [code]

    with pytest.raises(RefusedError) as refused:
        scene.run(lease())

    assert refused.value.code == code
    assert pauses == []
    assert scene.trainer.closed


def test_a_refusal_that_passes_is_waited_out(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str]
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.transport.refusals["check_in"] = ["draining"]

    scene.run(lease())

    assert len(pauses) == 1
    assert "report" in scene.transport.named


def test_an_update_that_the_coordinator_cannot_open_renews_the_keys_once(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = Scene(tmp_path, enrolled, TRAINED)
    scene.transport.refusals["commit"] = ["unseal_failed"]

    scene.run(lease(), lease())

    names = scene.transport.named
    assert names.count("renew") == 1
    assert names.index("renew") > names.index("commit")
    assert len(scene.trainer.jobs) == 2


@pytest.mark.parametrize(("days", "renewed"), [(59.0, False), (61.0, True)])
def test_certificates_are_renewed_at_two_thirds_of_their_life(
    tmp_path: Path, enrolled: Enrolled, days: float, renewed: bool
) -> None:
    scene = Scene(tmp_path, enrolled, days=days)
    before = Identity.load(scene.device.folder.identity).certificates

    scene.run(lease())

    assert scene.transport.named[0] == ("renew" if renewed else "check_in")
    assert (Identity.load(scene.device.folder.identity).certificates != before) is renewed


def test_a_device_whose_stream_stays_open_renews_its_certificates_in_time(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, enrolled)
    monkeypatch.setattr(agent_module, "RENEWAL_INTERVAL_S", 0.0)
    monkeypatch.setattr(agent_module, "SENSOR_INTERVAL_S", 0.0)
    scene.transport.on_check_in = lambda: scene.pass_to(days=61.0)
    before = Identity.load(scene.device.folder.identity).certificates
    # The first stream brings nothing for this device.
    other = wire.WorkOrder(lease_ended=wire.LeaseEnded(nonce=bytes(16)))

    scene.run(other, lease())

    assert pauses == ["renewal", "certificates renewed"]
    assert scene.transport.named == [
        *("check_in", "closed"),
        *("renew", "closed"),
        *("check_in", "fetch_model", "report", "closed"),
    ]
    assert Identity.load(scene.device.folder.identity).certificates != before


@pytest.mark.parametrize(("days", "said"), [(91.0, "expired"), (-2.0, "not valid yet")])
def test_an_expired_certificate_or_a_wrong_clock_is_told_before_anything_is_sent(
    tmp_path: Path, enrolled: Enrolled, days: float, said: str
) -> None:
    scene = Scene(tmp_path, enrolled, days=days)

    with pytest.raises(CertificateError, match=f"{said}.*set the clock"):
        scene.run(lease())

    assert scene.transport.calls == []
    assert scene.trainer.closed


def test_a_full_disk_is_waited_out(
    tmp_path: Path, enrolled: Enrolled, pauses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, enrolled)
    fetch = scene.transport.fetch_model
    full = [OSError(28, "No space left on device")]

    async def fetch_model(
        lease: wire.Lease,
        part: wire.ModelPart,
        total_bytes: int,
        target: Path,
        base_sha256: bytes = b"",
    ) -> None:
        if full:
            raise full.pop()
        await fetch(lease, part, total_bytes, target, base_sha256)

    monkeypatch.setattr(scene.transport, "fetch_model", fetch_model)

    scene.run(lease(), lease())

    assert pauses == ["[Errno 28] No space left on device"]
    assert "report" in scene.transport.named


def test_a_plan_that_the_device_refuses_does_not_end_it(tmp_path: Path, enrolled: Enrolled) -> None:
    scene = Scene(tmp_path, enrolled, Failed(code="data_unusable", reason="no known word"))

    ended = scene.run(lease())

    assert scene.transport.named == ["check_in", "fetch_model", "refuse_plan", "closed"]
    assert ended.not_served == NotServed("data_unusable", "no known word")


def test_without_data_no_place_in_a_round_is_taken(tmp_path: Path, enrolled: Enrolled) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.device.data.write_text("")

    with pytest.raises(DatasetError, match="is empty"):
        scene.run(lease())

    assert scene.transport.calls == []
    assert scene.trainer.closed


def test_an_agent_that_stays_waits_until_there_is_data(
    tmp_path: Path, enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, enrolled)
    scene.device.data.write_text("")
    waited: list[float] = []

    async def pause(seconds: float, reason: str) -> None:
        waited.append(seconds)
        scene.device.data.write_text("good morning\n")

    monkeypatch.setattr(agent_module, "_pause", pause)
    # What a person must mend is the one way in which such an agent ends by itself.
    scene.transport.refusals["check_in"] = ["certificate_revoked"]

    with pytest.raises(RefusedError):
        scene.run(lease(), once=False)

    assert waited == [agent_module.DATA_INTERVAL_S]
    assert scene.transport.named == ["check_in", "closed"]
