"""Each command says in one line which extra it needs."""

import subprocess
import sys

import pytest

# Stands for an installation without the extra: importing any of these modules fails.
BLOCK = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {"numpy", "torch", "sqlalchemy", "onnxruntime"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("server.entry", ["status", "nowhere"], "server"),
        ("simulation.cli", ["run", "keyboard-tiny"], "simulation"),
        ("export.cli", ["verify", "nowhere"], "export"),
        ("export.serve.cli", ["status", "nowhere"], "serve"),
        ("server.helper.cli", ["run", "nowhere"], "helper"),
    ],
)
def test_a_missing_extra_is_named(module: str, arguments: list[str], extra: str) -> None:
    script = f"{BLOCK}\nfrom {module} import main\nsys.exit(main({arguments!r}))"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"is missing; install sotto[{extra}]" in done.stderr
