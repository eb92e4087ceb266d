"""The command ``sotto-server`` as its operator uses it, with the coordinator in its own process.

Most are forked (``tests/forking.py``); ``is_forked=False`` starts the command.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from privacy.identities.invite import read_invite
from server.cli import main
from server.config.listen import ListenSettings
from tests.forking import ForkedCommand
from tests.integration.conftest import Make
from tests.integration.device import code_of, enrol, next_lease
from tests.integration.federation import Federation, settings
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("operator"), pytest.mark.usefixtures("no_forks_left")]


class Command:
    """Hold a coordinator that was started by its command."""

    def __init__(self, root: Path, *, is_forked: bool = True) -> None:
        arguments, started_at = ["run", str(root)], time.monotonic()
        log = root.with_name(f"{root.name}-{time.monotonic_ns()}.log")
        self.process: subprocess.Popen[bytes] | ForkedCommand
        log.touch()
        if is_forked:
            self.process = ForkedCommand(main, arguments, log)
        else:
            with log.open("wb") as file:
                self.process = subprocess.Popen([*_SERVER, *arguments], stdout=file, stderr=file)

        def told() -> list[str]:
            assert self.process.poll() is None, log.read_text()
            return [line for line in log.read_text().splitlines() if "on port" in line]

        (self.first_line,) = until(told)
        self.start_s = time.monotonic() - started_at

    def end(self, sent: signal.Signals) -> int:
        self.process.send_signal(sent)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(timeout=60)


_SERVER = [sys.executable, "-P", "-m", "server.cli"]


class Done(NamedTuple):
    """Hold what a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path) -> Done:
    """Run a command in this process, which saves the seconds of importing everything."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            status = main([*map(str, arguments)])
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


def commanded(federation: Federation, *, is_forked: bool) -> Iterator[tuple[Federation, Command]]:
    command = Command(federation.root, is_forked=is_forked)
    yield federation, command
    if command.process.poll() is None:
        command.process.kill()
        command.wait()


@pytest.fixture
def command(make_federation: Make) -> Iterator[tuple[Federation, Command]]:
    yield from commanded(make_federation(cohort=1, quorum=1), is_forked=True)


@pytest.fixture
def real_command(make_federation: Make) -> Iterator[tuple[Federation, Command]]:
    yield from commanded(make_federation(cohort=1, quorum=1), is_forked=False)


def test_a_federation_is_founded_and_devices_are_invited(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(settings())

    founded = run(
        "init", tmp_path / "f", "--config", tmp_path / "settings.toml", "--hostname", "sotto.test"
    )
    invited = run("token", tmp_path / "f", "--count", "2", "--out", tmp_path / "invites")

    assert founded.returncode == 0, founded.stderr
    assert invited.stdout.split() == [
        str(tmp_path / "invites" / f"invite-device-000{number}.json") for number in (1, 2)
    ]
    first, second = (read_invite(Path(line)) for line in invited.stdout.split())
    assert first.device_address.startswith("sotto.test:")
    assert first.token != second.token
    # Keys, store and invites are their owner's alone, and no token is on any screen.
    for path in (tmp_path / "f").rglob("*"):
        others = path.stat().st_mode & 0o077
        assert others == 0 or path.suffix == ".crt", path
    assert first.token not in invited.stdout
    again = run("init", tmp_path / "f", "--preset", "keyboard-tiny")
    assert (again.returncode, again.stdout) == (1, "")
    assert re.fullmatch(r"sotto-server: .* is not empty; .*\n", again.stderr)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["status"], 2),
        (["token", "DIR", "--count", "0"], 2),
        (["init", "DIR"], 2),
        (["init", "DIR", "--preset", "no-such"], 2),
        (["run", "DIR", "--devices", "nowhere"], 2),
        (["status", "DIR"], 1),
        (["drain", "DIR"], 1),
        (["init", "DIR", "--preset", "keyboard"], 1),
    ],
)
def test_wrong_usage_exits_with_two_and_failures_with_one_line_and_one(
    tmp_path: Path, arguments: list[str], status: int
) -> None:
    done = run(*(str(tmp_path / "f") if word == "DIR" else word for word in arguments))

    assert done.returncode == status
    assert done.stdout == ""
    assert status == 2 or len(done.stderr.splitlines()) == 1


def test_a_typo_in_the_settings_is_refused_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(settings().replace("quorum", "quorom"))

    done = run("init", tmp_path / "f", "--config", tmp_path / "settings.toml")

    assert done.returncode == 1
    assert "quorom" in done.stderr
    assert not (tmp_path / "f").exists()


def test_a_running_coordinator_is_watched_paused_and_drained(
    real_command: tuple[Federation, Command],
) -> None:
    federation, coordinator = real_command
    (device,) = federation.enrol(1)
    orders = device.check_in()
    device.take_part(next_lease(orders))
    lease = next_lease(orders)

    status = json.loads(run("status", federation.root, "--json").stdout)
    assert status["is_running"]
    assert (status["phase"], status["round_number"]) == ("open", 2)
    assert (status["connected_clients"], status["leased_clients"]) == (1, 1)
    assert status["guarantee"] == "none: no noise, no privacy guarantee"
    # 200 words in 8 numbers, three gates of a GRU with two biases, and 200 biases of the output.
    count = 200 * 8 + 2 * 24 * 8 + 2 * 24 + 200
    travel = f"method global: {count:,} parameters of everyone ({4 * count:,} bytes)"
    assert status["personalisation"] == travel
    assert [client["name"] for client in status["clients"]] == ["device-0001"]
    (first,) = json.loads(run("rounds", federation.root, "--json").stdout)
    assert (first["round_number"], first["contributions"]) == (1, 1)
    assert "device-0001" in run("status", federation.root).stdout
    drawn = run("watch", federation.root).stdout
    assert "round 2 of " in drawn
    assert "1 of 1 connected" in drawn
    assert "test on 1" in drawn  # The version that the device told.
    second_server = run("run", federation.root)
    assert second_server.returncode == 1
    assert "already" in second_server.stderr or "a coordinator serves" in second_server.stderr

    # Paused: the running round goes on, and no other opens.
    assert run("pause", federation.root).returncode == 0
    device.take_part(lease)
    wait_for_releases(federation, 2)
    status = json.loads(run("status", federation.root, "--json").stdout)
    assert (status["phase"], status["round_number"], status["is_paused"]) == ("waiting", 3, True)
    assert run("resume", federation.root).returncode == 0
    lease = next_lease(orders)

    # Drained: the round that is open is finished first.
    assert run("drain", federation.root).returncode == 0
    device.take_part(lease)
    assert coordinator.wait() == 0
    assert len(federation.releases()) == 3
    assert not json.loads(run("status", federation.root, "--json").stdout)["is_running"]


def test_a_revoked_device_loses_its_stream_at_once(command: tuple[Federation, Command]) -> None:
    federation, coordinator = command
    (device,) = federation.enrol(1)
    orders = device.check_in()
    lease = next_lease(orders)

    assert run("revoke", federation.root, device.name).returncode == 0

    with pytest.raises(grpc.RpcError) as caught:
        next_lease(orders)
    assert code_of(caught.value) == "certificate_revoked"
    with pytest.raises(grpc.RpcError) as caught:
        device.fetch(lease)
    assert code_of(caught.value) == "certificate_revoked"
    unknown = run("revoke", federation.root, "device-9999")
    assert unknown.returncode == 1
    assert "device-9999" in unknown.stderr
    assert run("forget", federation.root, device.name).returncode == 0
    assert coordinator.end(signal.SIGINT) == 0


def test_a_running_coordinator_withdraws_invites(
    command: tuple[Federation, Command], tmp_path: Path
) -> None:
    federation, coordinator = command
    (device,) = federation.enrol(1)
    again = federation.invite(client=device.name)[0]
    unused, forgotten = federation.invite(2)

    for name in (device.name, "device-0002"):
        assert run("revoke", federation.root, name).returncode == 0
    done = run("forget", federation.root, "device-0003")

    assert done.returncode == 0, done.stderr
    for invite in (again, unused, forgotten):
        with pytest.raises(grpc.RpcError) as caught:
            enrol(invite, tmp_path / invite.stem)
        assert code_of(caught.value) == "token_expired"
    assert coordinator.end(signal.SIGINT) == 0


def test_a_killed_coordinator_serves_again_within_a_minute(
    command: tuple[Federation, Command],
) -> None:
    federation, coordinator = command
    coordinator.end(signal.SIGKILL)

    again = Command(federation.root, is_forked=False)

    assert "devices on port" in again.first_line
    # About two seconds on an idle machine (benchmarks/resilience.py), and several on one that is
    # busy testing; a recovery that waits for something takes minutes.
    assert again.start_s < 60
    assert again.end(signal.SIGTERM) == 0


def test_a_backup_goes_on_where_it_was_made(
    command: tuple[Federation, Command], tmp_path: Path
) -> None:
    federation, coordinator = command
    (device,) = federation.enrol(1)
    orders = device.check_in()
    device.take_part(next_lease(orders))
    next_lease(orders)
    wait_for_releases(federation, 1)
    archive = tmp_path / "backup.tar"

    saved = run("backup", federation.root, "--out", archive)
    coordinator.end(signal.SIGKILL)
    restored = run("restore", archive, tmp_path / "restored")

    assert (saved.returncode, restored.returncode) == (0, 0), saved.stderr + restored.stderr
    assert archive.stat().st_mode & 0o077 == 0
    assert "revoked, forgotten" in restored.stdout
    assert "noise.secret" not in saved.stdout + restored.stdout
    device.close()
    device.connect()
    again = Command(tmp_path / "restored")
    orders = device.check_in()
    lease = next_lease(orders)
    assert lease.round_number == 2
    device.take_part(lease)
    # Paused: the round that was open has gone on, and the next one waits for the operator.
    until(
        lambda: (
            json.loads(run("status", tmp_path / "restored", "--json").stdout)["round_number"] == 3
        )
    )
    status = json.loads(run("status", tmp_path / "restored", "--json").stdout)
    assert (status["phase"], status["is_paused"]) == ("waiting", True)
    assert run("resume", tmp_path / "restored").returncode == 0
    assert next_lease(orders).round_number == 3
    device.close()
    assert again.end(signal.SIGINT) == 0


def test_rotated_keys_are_taken_up_at_the_next_start(
    command: tuple[Federation, Command], tmp_path: Path
) -> None:
    federation, coordinator = command
    (old,) = federation.enrol(1)
    refused = run("rotate-keys", federation.root)
    assert refused.returncode == 1
    assert "drain" in refused.stderr
    coordinator.end(signal.SIGINT)

    assert run("rotate-keys", federation.root).returncode == 0

    again = Command(federation.root)
    (invite,) = federation.invite()
    new = enrol(invite, tmp_path / "new")
    assert new.coordinator_wrapping.sha256 != old.coordinator_wrapping.sha256
    new.close()
    assert again.end(signal.SIGTERM) == 0


def wait_for_releases(federation: Federation, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(release.is_published for release in federation.releases()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_machine_may_listen_elsewhere_than_the_shared_settings_say(
    make_federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.operating import running

    federation = make_federation()
    told: list[ListenSettings] = []

    async def serve(*_: object, listen: ListenSettings, **__: object) -> None:
        told.append(listen)

    monkeypatch.setattr(running, "serve", serve)

    assert run("run", federation.root, "--devices", "127.0.0.2:7551").returncode == 0

    listen = federation.config.listen
    (here,) = told
    assert (here.devices, here.enrolment) == ("127.0.0.2:7551", listen.enrolment)
    refused = run("run", federation.root, "--devices", listen.enrolment)
    assert (refused.returncode, "must differ" in refused.stderr) == (1, True)
