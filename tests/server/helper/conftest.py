import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from server.helper.folder import HelperFolder
from tests.server.helper.scene import Parties, make_parties


@pytest.fixture(scope="package")
def admitted(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("helper"))


@pytest.fixture
def parties(admitted: Parties, tmp_path: Path) -> Parties:
    """The federation, with a helper that has answered nothing."""
    shutil.copytree(admitted.folder.root, tmp_path / "helper")
    return replace(admitted, root=tmp_path, folder=HelperFolder(tmp_path / "helper"))
