import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from simulation.engines.scratch import remove_unowned, scratch_folder, scratch_place

WORKS = """
import time
from simulation.engines.scratch import scratch_folder

with scratch_folder("01000000") as folder:
    (folder / "state").write_text("kept")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_whose_process_was_killed_goes_when_the_next_work_begins() -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", WORKS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())
        assert remove_unowned() == {"01000000"}
        with scratch_folder("02000000"):
            assert (folder / "state").read_text() == "kept"
        process.kill()

    with scratch_folder("02000000") as other:
        assert list(scratch_place().glob("*/")) == [other]
    assert remove_unowned() == set()
    assert list(scratch_place().glob("0*")) == []


def test_a_place_that_others_can_open_is_refused() -> None:
    scratch_place().chmod(0o755)

    with pytest.raises(PermissionError, match=r"sotto-nodes-.* others cannot open"):
        scratch_place()
