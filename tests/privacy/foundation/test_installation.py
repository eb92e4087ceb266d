"""Commands refuse to run with a package of another program under one of sotto's names."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from privacy.foundation.installation import InstallationError, check_installation


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a folder first on the path, with none of sotto's packages imported from the real one."""
    monkeypatch.syspath_prepend(tmp_path)
    for package in ("models", "server", "export"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    return tmp_path


def test_one_home_for_all_packages_is_fine() -> None:
    check_installation()


@pytest.mark.parametrize("package", ["models", "server", "export"])
def test_a_package_from_elsewhere_is_named(elsewhere: Path, package: str) -> None:
    (elsewhere / package).mkdir()
    (elsewhere / package / "__init__.py").touch()

    with pytest.raises(InstallationError, match=f"'{package}' is {elsewhere / package}"):
        check_installation()


def test_a_module_in_place_of_a_package_is_named(elsewhere: Path) -> None:
    (elsewhere / "models.py").touch()

    with pytest.raises(InstallationError, match=r"'models' is .*models\.py"):
        check_installation()


def test_a_package_that_is_not_installed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without_simulation(name: str) -> ModuleSpec | None:
        return None if name == "simulation" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_simulation)

    check_installation()


def test_a_strangers_package_does_not_run_before_it_is_refused(elsewhere: Path) -> None:
    (elsewhere / "models").mkdir()
    (elsewhere / "models" / "__init__.py").write_text('raise RuntimeError("a stranger ran")')

    with pytest.raises(InstallationError):
        check_installation()
