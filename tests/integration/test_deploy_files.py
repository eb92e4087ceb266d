"""Files in `deploy/` and its page agree with the commands, settings and extras they name."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import yaml

import edge_client.cli
import export.cli
import export.serve.cli
import privacy.cli
import server.cli
import server.helper.cli
from export.serve.doors.bounded_listener import MOST_CONNECTIONS
from export.serve.folder.settings import STARTING_SETTINGS
from server.config.federation import preset_text
from server.helper.cli import NewHelper

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
CONTAINERS = sorted((DEPLOY / "containers").iterdir())
PROGRAMS: dict[str, Callable[[Sequence[str]], int]] = {
    "sotto-server": server.cli.main,
    "sotto-helper": server.helper.cli.main,
    "sotto-client": edge_client.cli.main,
    "sotto-privacy": privacy.cli.main,
    "sotto-export": export.cli.main,
    "sotto-serve": export.serve.cli.main,
}
_INSTRUCTION = re.compile(r"^([A-Z]+) +(.+)$", re.MULTILINE)
_PIN = re.compile(r"([a-z0-9-]+)==([0-9.]+)")


def _settings(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def _instructions(container: Path, name: str) -> list[str]:
    joined = container.read_text().replace("\\\n", " ")
    return [given for key, given in _INSTRUCTION.findall(joined) if key == name]


def _command_lines() -> Iterator[tuple[str, str]]:
    for unit in UNITS:
        for line in (*_settings(unit, "ExecStart"), *_settings(unit, "ExecReload")):
            yield unit.name, line
    for container in CONTAINERS:
        (entry,), (rest,) = _instructions(container, "ENTRYPOINT"), _instructions(container, "CMD")
        words = [*msgspec.json.decode(entry), *msgspec.json.decode(rest)]
        yield container.name, shlex.join(words)
    for name in (
        "deploy.md",
        "when-something-was-stolen.md",
        "let-nobody-see-an-update.md",
        "scale.md",
    ):
        page = (ROOT / "docs" / name).read_text()
        for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
            for line in re.findall(r"^[$#] (.*)$", block, re.MULTILINE):
                yield f"docs/{name}", _in_its_container(line)


def _in_its_container(line: str) -> str:
    """Return what a container's entry point runs for a line that starts one."""
    run = re.sub(r"^podman compose run --rm coordinator", "sotto-server", line)
    run = re.sub(r"^podman compose run --rm serve", "sotto-serve", run)
    return re.sub(r"^podman run .*?sotto-client", "sotto-client", run)


def _sotto_calls() -> list[tuple[str, str, list[str]]]:
    """Return where it stands, the program and its arguments, of each call of ours."""
    calls = []
    for where, line in _command_lines():
        found = re.search(r"(?:^|/bin/|exec coordinator )(sotto-[a-z]+) (.*)", line)
        if found and found[1] in PROGRAMS:
            calls.append((where, found[1], shlex.split(found[2].strip("'"))))
    return calls


@pytest.mark.parametrize(
    ("where", "program", "arguments"),
    [
        pytest.param(*call, id=f"{call[0]}: {' '.join([call[1], *call[2][:1]])}")
        for call in _sotto_calls()
    ],
)
def test_every_command_and_flag_exists(
    where: str, program: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if not arguments:
        return

    with pytest.raises(SystemExit) as ended:
        PROGRAMS[program]([arguments[0], "--help"])

    assert ended.value.code == 0, where
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert {word for word in arguments if word.startswith("--")} <= known


def test_units_containers_and_page_start_every_role() -> None:
    started = {(where, program) for where, program, _ in _sotto_calls()}

    for where, program in (
        ("sotto-server.service", "sotto-server"),
        ("sotto-server-backup.service", "sotto-server"),
        ("sotto-helper.service", "sotto-helper"),
        ("sotto-serve.service", "sotto-serve"),
        ("sotto-client@.service", "sotto-client"),
        ("sotto-client-nightly@.service", "sotto-client"),
        ("server.Containerfile", "sotto-server"),
        ("helper.Containerfile", "sotto-helper"),
        ("serve.Containerfile", "sotto-serve"),
        ("client.Containerfile", "sotto-client"),
        ("docs/deploy.md", "sotto-export"),
        ("docs/let-nobody-see-an-update.md", "sotto-helper"),
        ("docs/let-nobody-see-an-update.md", "sotto-privacy"),
        ("docs/when-something-was-stolen.md", "sotto-server"),
        ("docs/when-something-was-stolen.md", "sotto-serve"),
        ("docs/scale.md", "sotto-privacy"),
    ):
        assert (where, program) in started


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_works_in_its_own_state_and_lets_go_of_every_right(unit: Path) -> None:
    (state,) = _settings(unit, "StateDirectory")
    home = f"/var/lib/{state.partition('/backups')[0]}"

    named = re.findall(r"/var/lib/[^ \"']+", " ".join(_settings(unit, "ExecStart")))

    assert named
    assert all(path.startswith(home + "/") for path in named)
    assert _settings(unit, "User") != ["root"]
    for name, value in (
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("UMask", "0077"),
        ("StateDirectoryMode", "0700"),
    ):
        assert _settings(unit, name) == [value]


@pytest.mark.parametrize(
    "unit",
    [unit for unit in UNITS if _settings(unit, "Restart")],
    ids=lambda unit: unit.name,
)
def test_a_unit_that_starts_again_never_gives_up_and_takes_its_time(unit: Path) -> None:
    assert _settings(unit, "StartLimitIntervalSec") == ["0"]
    assert _settings(unit, "StartLimitBurst") == []
    (wait,) = _settings(unit, "RestartSec")
    assert wait.endswith("min") or int(wait) >= 15


@pytest.mark.parametrize(
    ("ages", "left"),
    [
        ({"a": 40, "b": 20, "c": 10, "d": 1}, {"c", "d"}),
        # No backup succeeded for a month: the newest is all there is.
        ({"z": 60, "a": 30}, {"a"}),
        ({}, set()),
    ],
)
def test_old_backups_go_before_the_next_one_is_made_but_never_the_newest(
    tmp_path: Path, ages: dict[str, int], left: set[str]
) -> None:
    unit = DEPLOY / "systemd" / "sotto-server-backup.service"
    (line,) = _settings(unit, "ExecStartPre")
    # A failure is passed over; systemd reads a doubled sign as one.
    assert line.startswith("-")
    arguments = shlex.split(line.removeprefix("-").replace("$$", "$").replace("%%", "%"))
    backups = tmp_path / "backups"
    backups.mkdir()
    for name, days in ages.items():
        archive = backups / f"{name}.tar"
        archive.touch()
        at = time.time() - days * 86_400
        os.utime(archive, (at, at))

    subprocess.run(arguments, cwd=tmp_path, check=False)

    assert {path.stem for path in backups.iterdir()} == left
    assert _settings(unit, "ExecStartPost") == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_every_unit(tmp_path: Path) -> None:
    for unit in (*UNITS, *TIMERS):
        # The programs are not installed here, and a template is checked by an instance of it.
        text = re.sub(r"/opt/sotto/bin/sotto-[a-z]+", "/bin/true", unit.read_text())
        (tmp_path / unit.name.replace("@", "@root")).write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(path) for path in sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )

    # What it says of the machine's own units is no concern of ours.
    assert [line for line in done.stderr.splitlines() if "sotto" in line] == []


def test_ports_are_those_that_the_settings_begin_with() -> None:
    listen = tomllib.loads(preset_text("keyboard"))["listen"]
    serving = tomllib.loads(STARTING_SETTINGS.format(accept_unsigned="false"))["listen"]
    (helpers_default,) = [
        field.default for field in msgspec.structs.fields(NewHelper) if field.name == "listen"
    ]
    ports = {
        "server": [int(listen[name].rpartition(":")[2]) for name in ("enrolment", "devices")],
        "serve": [int(serving["address"].rpartition(":")[2])],
        "helper": [int(helpers_default.rpartition(":")[2])],
        "client": [],
    }
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    for container in CONTAINERS:
        role = container.name.partition(".")[0]
        exposed = [
            int(port) for line in _instructions(container, "EXPOSE") for port in line.split()
        ]
        assert exposed[: len(ports[role])] == ports[role]
        published = [
            int(port)
            for service in services.values()
            if service["build"]["dockerfile"].endswith(container.name)
            for pair in service["ports"]
            for port in pair.split(":")[-2:]
        ]
        # A device is on its person's machine, and a helper on that of another party.
        is_ours = role not in ("client", "helper")
        assert set(published) == (set(exposed) if is_ours else set())


def test_a_model_server_is_bounded_and_published_to_its_own_machine_alone() -> None:
    (unit,) = (unit for unit in UNITS if unit.name == "sotto-serve.service")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["serve"]

    (descriptors,) = _settings(unit, "LimitNOFILE")
    (memory,) = _settings(unit, "MemoryMax")
    (tasks,) = _settings(unit, "TasksMax")

    # A listener takes a quarter of the descriptors, and at most so many.
    assert int(descriptors) // 4 == MOST_CONNECTIONS
    assert service["ulimits"]["nofile"] == int(descriptors)
    assert service["mem_limit"] == memory.lower()
    assert service["pids_limit"] == int(tasks)
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_volumes_and_what_containers_start_in_agree() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in services["services"].values():
        container = DEPLOY.parent / service["build"]["dockerfile"]
        (volumes,) = _instructions(container, "VOLUME")
        mounted = [volume.split(":")[1] for volume in service["volumes"]]
        assert set(msgspec.json.decode(volumes)) <= set(mounted)
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(services["volumes"])
        (command,) = _instructions(container, "CMD")
        assert msgspec.json.decode(command)[1].startswith("/data/")


def test_containers_install_hashed_lists_and_one_wheel_from_what_is_sent() -> None:
    sent = (ROOT / ".dockerignore").read_text().split()
    for container in CONTAINERS:
        copied = [
            source
            for line in _instructions(container, "COPY")
            if not line.startswith("--from")
            for source in line.split()[:-1]
        ]
        assert all(f"!{source}" in sent for source in copied)
        (build,) = [line for line in _instructions(container, "RUN") if "venv" in line]
        lists = re.findall(r"--no-deps --require-hashes[^&;]* -r /src/([^\s;]+)", build)
        assert [line for line in lists if not (ROOT / line).is_file()] == []
        # Beside the lists the wheel alone, whose maker is whoever builds the image.
        assert build.count("pip install") == len(lists) + 1
        assert "EXTRA_INDEX" not in container.read_text()


def test_the_digest_of_the_base_image_goes_into_every_container(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    digest = "sha256:" + "ab" * 32
    podman = tmp_path / "podman"
    podman.write_text(f"#!/bin/sh\n[ $1 = pull ] || echo {digest}\n")
    podman.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    # The second time it is the tag that is asked for, not the digest.
    for _ in range(2):
        command = ["sh", str(tmp_path / "deploy" / "lock" / "pin-images.sh")]
        subprocess.run(command, env=os.environ | path, check=True, capture_output=True)

    for container in (tmp_path / "deploy" / "containers").iterdir():
        text = container.read_text()
        assert f"ARG PYTHON_IMAGE=python:3.11-slim-bookworm@{digest}\n" in text
        assert len(re.findall(r"^FROM \$\{PYTHON_IMAGE\}", text, re.MULTILINE)) == 2


LISTS = sorted([*(DEPLOY / "lock").glob("*.txt"), *(DEPLOY / "device").glob("*.txt")])


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_a_lists_pins_are_the_projects_and_each_has_a_hash(path: Path) -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    # No list has the extra `pitch`, which is built with a setuptools of its own.
    project = dict(_PIN.findall(re.sub(r"^pitch = .*", "", settings, flags=re.MULTILINE)))
    text = path.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]

    pins = dict(_PIN.findall(text))

    assert pins
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}( |$)", line) for line in lines)
    assert {package: project.get(package, pin) for package, pin in pins.items()} == pins


def test_the_list_of_the_environment_has_every_pin_of_its_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    locked = dict(_PIN.findall((DEPLOY / "lock" / "dev.txt").read_text()))
    wanted = dict(_PIN.findall(" ".join([*extras["dev"], *extras["server"], *extras["serve"]])))

    # torch, which differs from index to index, has a list of its own.
    assert wanted.items() <= locked.items(), "run `make lock`"
    assert "torch" not in locked


def test_a_devices_list_has_what_somebody_wrote_for_it() -> None:
    for name in ("predict", "train"):
        written = _PIN.findall((DEPLOY / "device" / f"{name}.in").read_text())
        locked = _PIN.findall((DEPLOY / "device" / f"{name}.txt").read_text())
        assert {"numpy", "msgspec", "cryptography"} <= {package for package, _ in written}
        assert sorted(written) == sorted(locked), "run `make lock`"


@pytest.mark.slow
def test_a_wheel_that_is_built_twice_has_the_same_bytes(tmp_path: Path) -> None:
    built: list[str] = []
    for name in ("once", "again"):
        sources = tmp_path / name / "sotto"
        copied = ["protos", "privacy", "models", "server", "edge_client", "export"]
        copied += ["simulation", "sotto"]
        for package in copied:
            unsent = shutil.ignore_patterns("__pycache__", "onnxruntime")
            shutil.copytree(ROOT / package, sources / package, ignore=unsent)
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, sources)
        # Another time, another umask.
        os.utime(sources / "protos" / "version.py", (0, len(built) * 86_400))
        (sources / "protos" / "version.py").chmod(0o664 if built else 0o600)
        build = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel"]
        subprocess.run(build, cwd=sources, check=True, capture_output=True)
        (wheel,) = (sources / "dist").glob("*.whl")
        built.append(hashlib.sha256(wheel.read_bytes()).hexdigest())

    assert built[0] == built[1]
