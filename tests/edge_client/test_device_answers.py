"""A device's answers follow from plan, model and noise alone, whatever its text is.

The machinery, and the whole of it over 200 models a mode, is `benchmarks.device_answers`.
"""

import shutil
from pathlib import Path

import pytest

from benchmarks.parts.answering_device import AnsweringDevice
from benchmarks.parts.crafted_models import MODES, crafted
from benchmarks.parts.two_answers import verdict
from edge_client.folder.layout import DeviceFolder
from edge_client.owner.starting_floor import write_starting_floor
from tests.edge_client.job_scene import Enrolled, enrol_device

KINDS = 10


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


@pytest.fixture
def device(tmp_path: Path, enrolled: Enrolled) -> AnsweringDevice:
    shutil.copytree(enrolled.device, tmp_path / "device")
    folder = DeviceFolder(tmp_path / "device")
    write_starting_floor(folder.floor)
    return AnsweringDevice(folder, enrolled.coordinator, tmp_path)


def told(device: AnsweringDevice, mode: str, indices: range) -> dict[int, str]:
    """Return what tells two people apart, by the number of the crafted model."""
    verdicts = {index: verdict(device, mode, index) for index in indices}
    # Some are refused for what they are; from the others an update must come.
    assert not all(found.refused for found in verdicts.values())
    return {index: found.told_by for index, found in verdicts.items() if found.told_by is not None}


@pytest.mark.parametrize("mode", MODES)
def test_no_kind_of_crafted_model_tells_who_typed_a_word(
    device: AnsweringDevice, mode: str
) -> None:
    assert len({crafted(mode, index).kind for index in range(KINDS)}) == KINDS

    assert told(device, mode, range(KINDS)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_crafted_model_of_two_dozen_tells_who_typed_a_word(
    device: AnsweringDevice, mode: str
) -> None:
    assert told(device, mode, range(KINDS, 24)) == {}
