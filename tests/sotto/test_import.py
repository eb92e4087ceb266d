"""The door opens at once, and says what stands in its way."""

import subprocess
import sys
from pathlib import Path

import pytest

import sotto

_HEAVY = {"torch", "numpy", "grpc", "msgspec", "rich", "onnxruntime", "models", "privacy"}


def _python(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


def test_the_import_loads_nothing(tmp_path: Path) -> None:
    script = "import sys; before = set(sys.modules); import sotto; "
    script += "print(*sorted(set(sys.modules) - before))"

    done = _python(script, tmp_path)

    loaded = done.stdout.split()
    assert "sotto" in loaded, done.stderr
    assert not _HEAVY & {name.partition(".")[0] for name in loaded}
    assert len(loaded) < 5


@pytest.mark.parametrize(
    "package",
    ["protos", "privacy", "models", "server", "edge_client", "export", "simulation"],
)
def test_a_strangers_package_is_named_and_does_not_run(package: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text('print("a stranger ran")')

    done = _python("import sotto; sotto.epsilon", tmp_path)

    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"'{package}' is {tmp_path / package}.py" in last
    assert "install sotto into an environment of its own" in last


def test_a_strangers_package_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "models.py").touch()

    done = _python("import models; import sotto; sotto.epsilon", tmp_path)

    assert f"'models' is {tmp_path / 'models.py'}" in done.stderr.splitlines()[-1]


def test_a_module_that_a_program_made_is_named(tmp_path: Path) -> None:
    script = "import sys, types; sys.modules['models'] = types.ModuleType('models'); import sotto; "

    done = _python(script + "sotto.epsilon", tmp_path)

    assert "'models' is " in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("missing", "name", "extra"),
    [("torch", "sweep", "simulation"), ("dp_accounting", "noise_for", "server")],
)
def test_a_missing_extra_is_named(missing: str, name: str, extra: str, tmp_path: Path) -> None:
    # A None among the modules is how Python marks what must not be found.
    script = f"import sys; sys.modules[{missing!r}] = None; import sotto; sotto.{name}"

    done = _python(script, tmp_path)

    assert done.stderr.splitlines()[-1] == (
        f"ImportError: sotto.{name} needs {missing}, which is missing; install sotto[{extra}]"
    )


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"no 'epsilom'; it has Keyboard, .*epsilon"):
        _ = sotto.epsilom  # type: ignore[attr-defined]  # The name is wrong on purpose.
    assert dir(sotto) == sorted(sotto.__all__)
