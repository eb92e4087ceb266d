"""What an operator types often answers without torch, which alone takes a second to load."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from server.config.federation import preset_text
from server.operating.founding import found

# Run in a fresh interpreter: this one has loaded torch for other tests.
PROGRAM = """
import shlex, sys
from server.cli import main
for command in sys.argv[1:]:
    try:
        status = main(shlex.split(command))
    except SystemExit as ended:
        status = ended.code
    loaded = sorted({"torch", "opacus"} & sys.modules.keys())
    print(f"ended {command.split()[0]}: status {status}, loaded {loaded}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("light") / "federation"
    found(root, preset_text("keyboard-tiny"), [])
    return root


@pytest.mark.slow
def test_the_operators_commands_load_no_torch(folder: Path) -> None:
    where = shlex.quote(str(folder))
    commands = ["status --help", f"status {where}", f"status {where} --json"]
    commands += [f"{name} {where}" for name in ("rounds", "token", "pause", "resume")]

    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *commands],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    told = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
    names = ["status"] * 3 + ["rounds", "token", "pause", "resume"]
    assert told == [f"ended {name}: status 0, loaded []" for name in names]
