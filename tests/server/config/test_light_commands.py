"""What an operator types often answers without torch, which alone takes a second to load."""

import subprocess
import sys
from pathlib import Path

import pytest

from server.config.federation import preset_text
from server.operating.founding import found

# Run in a fresh interpreter: this one has loaded torch for other tests.
PROGRAM = """
import sys
from server.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
loaded = sorted({"torch", "opacus"} & sys.modules.keys())
print(f"status {status}, loaded {loaded}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("light") / "federation"
    found(root, preset_text("keyboard-tiny"), [])
    return root


@pytest.mark.parametrize(
    "command",
    [
        ["status", "--help"],
        ["status", "FOLDER"],
        ["status", "FOLDER", "--json"],
        ["rounds", "FOLDER"],
        ["token", "FOLDER"],
        ["pause", "FOLDER"],
        ["resume", "FOLDER"],
    ],
    ids=" ".join,
)
def test_the_operators_commands_load_no_torch(folder: Path, command: list[str]) -> None:
    arguments = [str(folder) if word == "FOLDER" else word for word in command]

    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.splitlines()[-1] == "status 0, loaded []"
