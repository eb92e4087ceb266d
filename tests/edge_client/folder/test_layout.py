import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import msgspec
import pytest

from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, DeviceFolderError, Enrolment

ENROLMENT = Enrolment(
    client_name="device-0001", run="0" * 32, device_address="localhost:1", ca_certificate=b"ca"
)


def test_an_enrolment_is_read_back(tmp_path: Path) -> None:
    folder = DeviceFolder(tmp_path / "device")
    folder.create()
    folder.save(ENROLMENT)
    folder.save_coordinator(CoordinatorKeys(wrapping=b"w", signing=b"s"))

    again = DeviceFolder(tmp_path / "device")

    assert again.enrolment() == ENROLMENT
    assert again.coordinator() == CoordinatorKeys(wrapping=b"w", signing=b"s")


def test_an_enrolment_with_one_address_is_one_that_earlier_software_reads(tmp_path: Path) -> None:
    folder = DeviceFolder(tmp_path)
    folder.save(ENROLMENT)
    alone = (tmp_path / "enrolment.json").read_bytes()
    folder.save(msgspec.structs.replace(ENROLMENT, other_device_addresses=("[::1]:1",)))

    assert alone == (
        b'{"client_name":"device-0001","run":"00000000000000000000000000000000",'
        b'"device_address":"localhost:1","ca_certificate":"Y2E=","helper_certificate":""}'
    )
    assert ENROLMENT.device_addresses == ("localhost:1",)
    assert folder.enrolment().device_addresses == ("localhost:1", "[::1]:1")


def test_the_folder_is_its_owners_only(tmp_path: Path) -> None:
    folder = DeviceFolder(tmp_path / "device")
    folder.create()

    assert folder.path.stat().st_mode & 0o077 == 0


def test_a_device_that_is_not_enrolled_says_how_to_enrol(tmp_path: Path) -> None:
    with pytest.raises(DeviceFolderError, match="sotto-client enrol"):
        DeviceFolder(tmp_path).enrolment()


def test_a_changed_enrolment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "enrolment.json").write_text('{"client_name": 5}')

    with pytest.raises(DeviceFolderError, match="client_name"):
        DeviceFolder(tmp_path).enrolment()


def test_the_plan_of_another_round_is_written_only_if_it_is_another(tmp_path: Path) -> None:
    folder = DeviceFolder(tmp_path)
    folder.note_plan(b"{}")
    first = (tmp_path / "plan.json").stat().st_ino

    folder.note_plan(b"{}")

    # Every write makes a new file.
    assert (tmp_path / "plan.json").stat().st_ino == first
    folder.note_plan(b'{"version":1}')
    assert folder.plan() == b'{"version":1}'


@pytest.mark.parametrize("name", ["plan.json", "signed_plan.json", "travel.txt", "refused.txt"])
def test_a_file_larger_than_what_is_kept_in_it_is_refused_unread(tmp_path: Path, name: str) -> None:
    folder = DeviceFolder(tmp_path)
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)
    read = {
        "plan.json": folder.plan,
        "signed_plan.json": folder.signed_plan,
        "travel.txt": folder.travel,
        "refused.txt": folder.refused,
    }[name]

    with pytest.raises(DeviceFolderError, match="at most"):
        read()


def hold(path: Path, held: Event) -> None:
    with DeviceFolder(path).sole_agent():
        held.set()
        multiprocessing.Event().wait()


def test_a_second_agent_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    first = context.Process(target=hold, args=(tmp_path, held))
    first.start()
    assert held.wait(100)

    with (
        pytest.raises(DeviceFolderError, match="another sotto-client"),
        DeviceFolder(tmp_path).sole_agent(),
    ):
        pass
    first.kill()
    first.join()

    with DeviceFolder(tmp_path).sole_agent():
        pass
