"""The command ``sotto-client`` as a device's owner meets it: one line and a status."""

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from edge_client.agent.agent import Agent
from edge_client.agent.exit_status import NotServed
from edge_client.agent.session import Ended
from edge_client.cli import main
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.owner.example_ledger import ExampleSpending, write_spending
from edge_client.owner.finding import Finding
from edge_client.owner.settings import write_starting_settings
from edge_client.owner.starting_floor import write_starting_floor
from privacy.example_level.settings import ExampleEvent
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from tests.privacy.conftest import RUN, enrol

DAY_S = 86_400
NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_client.owner.doctor._CONNECT_TIMEOUT_S", 60.0)


@dataclass(frozen=True)
class Device:
    """Hold an enrolled device and its text."""

    folder: DeviceFolder
    data: Path

    def run(self, *more: str) -> int:
        return main(["run", str(self.folder.path), "--data", str(self.data), "--once", *more])


def not_served(code: str) -> Ended:
    return Ended(0.0, "served", NotServed(code, "as told"))


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Path]:
    """Return a function that gives a device enrolled some days ago, made once for all tests."""
    root = tmp_path_factory.mktemp("templates")
    long_ago = time.time() - 365 * DAY_S
    authority = CertificateAuthority.create(root / "authority", RUN.hex(), now=long_ago)

    def make(days_ago: float) -> Path:
        path = root / f"enrolled-{days_ago}"
        if path.exists():
            return path
        now = time.time() - days_ago * DAY_S
        folder = DeviceFolder(path)
        folder.create()
        enrol(authority, folder.identity, "device-0001", "device", now=now)
        coordinator = enrol(authority, root / f"c{days_ago}", "coordinator", "coordinator", now=now)
        given = coordinator.certificates
        folder.save_coordinator(CoordinatorKeys(wrapping=given.wrapping, signing=given.signing))
        write_starting_floor(folder.floor, accepts_no_guarantee=True)
        write_starting_settings(folder.client_settings)
        # A machine that runs tests is never idle, and may be on battery.
        folder.client_settings.write_text(
            "[policy]\ncharging = false\nidle = false\nunmetered = false\n"
        )
        folder.save(
            Enrolment(
                client_name="device-0001",
                run=RUN.hex(),
                device_address=NOBODY,
                ca_certificate=authority.certificate,
            )
        )
        return path

    return make


@pytest.fixture
def device(tmp_path: Path, templates: Callable[[float], Path]) -> Device:
    return placed(tmp_path, templates(0.0))


def placed(tmp_path: Path, template: Path) -> Device:
    shutil.copytree(template, tmp_path / "device")
    data = tmp_path / "text"
    data.mkdir()
    (data / "messages.txt").write_text("good morning\n")
    return Device(DeviceFolder(tmp_path / "device"), data)


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that was printed."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("sotto-client: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_folder_that_is_not_enrolled_says_how_to_enrol(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(tmp_path), "--data", str(tmp_path)]) == 1
    assert "sotto-client enrol" in failure(capsys)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\x00", b'{"token": 5}'])
def test_an_invite_that_is_none_is_refused_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    invite = tmp_path / "invite.json"
    if content is not None:
        invite.write_bytes(content)

    assert main(["enrol", str(tmp_path / "device"), "--invite", str(invite)]) == 1
    assert "invite.json" in failure(capsys)
    assert not (tmp_path / "device").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda device: device.folder.floor.unlink(), "floor.toml"),
        (lambda device: device.folder.floor.write_text("modes = 1"), "modes"),
        (
            lambda device: device.folder.client_settings.write_text("keep_warm = 1"),
            "keep_warm",
        ),
        (
            lambda device: device.folder.client_settings.write_text('coordinator = ["a:1", "a:1"]'),
            "coordinator must give each address once, got 'a:1' twice",
        ),
        (
            lambda device: device.folder.floor.write_text(
                device.folder.floor.read_text() + 'data_folders = ["/elsewhere"]\n'
            ),
            "the data must lie in one of /elsewhere",
        ),
        (lambda device: shutil.rmtree(device.folder.identity), "identity"),
        (lambda device: device.folder.identity.chmod(0o755), "chmod"),
    ],
    ids=["no-floor", "bad-floor", "typo", "address", "data-folder", "no-identity", "open-keys"],
)
def test_what_is_wrong_on_the_device_is_told_in_one_line(
    device: Device,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Device], object],
    said: str,
) -> None:
    spoil(device)

    assert device.run() == 1
    assert said in failure(capsys)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda device: shutil.rmtree(device.data), "--data must be a folder or a file"),
        (lambda device: (device.data / "messages.txt").unlink(), "is empty"),
        (lambda device: (device.data / "messages.txt").rename(device.data / ".hidden"), "is empty"),
        (lambda device: as_file(device, "text.jsonl", b""), "is empty"),
        (lambda device: as_file(device, "text.txt", b"good\0morning"), "byte 4 is zero"),
    ],
    ids=["missing", "empty-folder", "hidden", "empty-file", "binary"],
)
def test_data_that_cannot_be_used_is_told_before_anything_is_asked_of_anybody(
    device: Device,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Device], object],
    said: str,
) -> None:
    spoil(device)

    # Nobody listens at this device's coordinator: had it asked, it would wait for an answer.
    assert device.run() == 3
    assert said in failure(capsys)


def as_file(device: Device, name: str, content: bytes) -> None:
    """Put one file where the folder of text was."""
    shutil.rmtree(device.data)
    file = device.data.with_name(name)
    file.write_bytes(content)
    device.data.symlink_to(file)


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (Ended(0.0, "served"), (0, "")),
        (not_served("data_unusable"), (3, "(data_unusable): as told")),
        (not_served("floor_cohort"), (4, "(floor_cohort): as told")),
        (not_served("schema_mismatch"), (4, "(schema_mismatch): as told")),
        (not_served("floor_unusable"), (1, "(floor_unusable): as told")),
        (not_served("out_of_memory"), (1, "(out_of_memory): as told")),
        (Ended(3600.0, "finished"), (5, "the run is over")),
    ],
)
def test_once_tells_by_its_status_what_came_of_the_round(
    device: Device,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ended: Ended,
    told: tuple[int, str],
) -> None:
    async def run(_agent: Agent, *, once: bool) -> Ended:
        assert once
        return ended

    monkeypatch.setattr(Agent, "run", run)
    status, said = told

    assert device.run() == status
    assert said in (failure(capsys) if status else "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", NOBODY),
        ('coordinator = "b.test:7441"\n', "b.test:7441"),
        ('coordinator = ["c.test:7441", "b.test:7441"]\n', "c.test:7441"),
    ],
)
def test_the_owner_may_say_where_the_coordinator_is(
    device: Device, monkeypatch: pytest.MonkeyPatch, line: str, expected: str
) -> None:
    begun: list[tuple[str, bool]] = []

    async def run(agent: Agent, *, once: bool) -> Ended:
        begun.append((agent.addresses.current, agent.addresses.are_several))
        return Ended(0.0, "served")

    monkeypatch.setattr(Agent, "run", run)
    device.folder.client_settings.write_text(line)

    assert device.run() == 0
    assert begun == [(expected, "[" in line)]


def test_the_help_documents_the_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])

    shown = capsys.readouterr().out
    assert all(f"\n  {status}  " in shown for status in range(6))


@pytest.mark.slow
def test_an_expired_device_is_told_so(
    tmp_path: Path, templates: Callable[[float], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert placed(tmp_path, templates(91.0)).run() == 1
    assert "expired" in failure(capsys)


def test_a_second_agent_on_the_same_folder_is_refused(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    with device.folder.sole_agent():
        assert device.run() == 1

    assert "another sotto-client runs on" in failure(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["run", "DIR"],
        ["run", "DIR", "--data", "PATH", "--device", "tpu"],
        ["enrol", "DIR"],
        ["enrol", "DIR", "--token", "00"],
    ],
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(arguments)

    assert exited.value.code == 2


def examined(device: Device, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, bool]]:
    status = main(["doctor", str(device.folder.path), "--json"])
    found = json.loads(capsys.readouterr().out)
    return status, {subject: finding["good"] for subject, finding in found.items()}


def test_the_doctor_finds_nothing_wrong_where_a_coordinator_listens(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        content = (device.folder.path / "enrolment.json").read_text()
        (device.folder.path / "enrolment.json").write_text(content.replace(NOBODY, address))

        status, good = examined(device, capsys)

    assert status == 0
    assert all(good.values())
    assert {"enrolment", "certificates", "settings", "floor", "policy", "coordinator"} <= set(good)


def test_the_doctor_looks_at_every_address_and_one_that_answers_is_enough(
    device: Device, templates: Callable[[float], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known = device.folder.coordinator()
    settings = device.folder.client_settings
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        settings.write_text(f'coordinator = ["{NOBODY}", "{address}"]\n{settings.read_text()}')

        status, _ = examined(device, capsys)
        assert status == 0
        main(["doctor", str(device.folder.path), "--json"])
        told = json.loads(capsys.readouterr().out)["coordinator"]["text"]

        # The certificate that it met names these hosts; a third it would never accept.
        shown = Identity.load(templates(0.0).parent / "c0.0").certificates.tls
        device.folder.save_coordinator(msgspec.structs.replace(known, tls=shown))
        assert examined(device, capsys)[0] == 0
        settings.write_text(settings.read_text().replace(NOBODY, "elsewhere.test:7441"))
        main(["doctor", str(device.folder.path), "--json"])
        unnamed = json.loads(capsys.readouterr().out)["coordinator"]

    assert re.fullmatch(f"{NOBODY} cannot be reached: .*; {address} answers", told)
    assert not unnamed["good"]
    assert "must name elsewhere.test, got localhost, 127.0.0.1; " in unnamed["text"]


@pytest.mark.parametrize(
    ("spoil", "subject"),
    [
        (lambda device: device.folder.floor.unlink(), "floor"),
        (lambda device: device.folder.client_settings.write_text("x = 1"), "settings"),
        (lambda device: shutil.rmtree(device.folder.identity), "certificates"),
        (lambda device: (device.folder.path / "enrolment.json").unlink(), "enrolment"),
        (lambda device: device.folder.example_ledger.write_text("torn"), "example privacy"),
    ],
)
def test_the_doctor_names_what_is_wrong_and_goes_on(
    device: Device,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Device], object],
    subject: str,
) -> None:
    spoil(device)

    status, good = examined(device, capsys)

    assert status == 1
    assert not good[subject]
    # Nobody listens where this device's coordinator should be; the disk is fine all the same.
    assert (good["coordinator"], good["training"]) == (False, True)


def test_the_doctor_tells_what_example_privacy_has_cost(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    event = ExampleEvent(noise_multiplier=1.0, sampling_rate=0.1, step_count=20)
    spent = ExampleSpending(events=(event,), round_count=2, epsilon=1.234, delta=1e-5)
    write_spending(device.folder.example_ledger, spent)

    main(["doctor", str(device.folder.path), "--json"])

    found = json.loads(capsys.readouterr().out)["example privacy"]
    assert found["text"] == "epsilon 1.23 at delta 1e-05 for one sentence, over 2 rounds"


def test_the_doctor_tells_what_travels_and_what_is_kept(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        main(["doctor", str(device.folder.path), "--json"])
        return str(json.loads(capsys.readouterr().out)["personalisation"]["text"])

    assert told() == "no round has said yet what travels"
    device.folder.note_travel("method fedper: 10 parameters of everyone")
    assert told() == "method fedper: 10 parameters of everyone"
    device.folder.personal.waiting(bytes(16)).write_bytes(b"12345")
    device.folder.personal.accept(bytes(16))
    assert "everyone; a personal model of 5 bytes is kept in" in told()


def test_the_doctor_shows_a_digest_whole_where_a_line_is_too_short_for_it(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = "0123456789abcdef" * 4

    async def examine(*_: object, **__: object) -> list[Finding]:
        return [Finding("helper", True, f"the helper {digest} holds masks")]

    monkeypatch.setattr("edge_client.owner.doctor.examine", examine)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor", str(device.folder.path)]) == 0

    assert digest in re.sub(r"\s+", "", capsys.readouterr().out)


def test_the_doctor_shows_a_table(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(device.folder.path)]) == 1

    shown = capsys.readouterr().out
    assert "certificates" in shown
    assert "cannot be reached" in shown


def test_the_doctor_tells_what_a_round_would_make_of_the_text(
    device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("I will meet Mr Smith at 12 Zelkova Street and you\n" * 10)
    settings = device.folder.client_settings
    settings.write_text("[text]\nkeep = ['addresses']\n")

    def told(data: Path) -> dict[str, tuple[bool, str]]:
        main(["doctor", str(device.folder.path), "--data", str(data), "--json"])
        found = json.loads(capsys.readouterr().out)
        return {name: (one["good"], one["text"]) for name, one in found.items()}

    found = told(text)
    missing = told(tmp_path / "elsewhere")

    assert found["text"] == (
        True,
        "10 texts, 10 sentences, 110 words: 8 texts to train on, 2 of the newest to score on",
    )
    # Two of each eleven words are hidden, the name and the number; the list has no "zelkova".
    assert found["known words"] == (True, "english-10k has 80 of 90 words (88.9%)")
    # The number stays hidden where its street does not: no list has it.
    assert found["private"] == (
        True,
        "cut from training: names 10, numbers 10; left in by keep: addresses",
    )
    assert found["enough"] == (True, "to train on and to score on")
    assert not missing["text"][0]
    assert "elsewhere is missing" in missing["text"][1]
    assert str(text) not in str(found)
    assert not [word for word in ("smith", "zelkova") if word in str(found).lower()]
