"""Files that were written before the packages got their districts open as they did then."""

import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from edge_client.cli import main as client
from export.cli import main as export
from server.cli import main as server
from server.releases.files import read_release
from simulation.cli import main as simulate
from tests.edge_client.child import test_publishing

in_process = test_publishing.in_process
FILES = Path(__file__).with_name("earlier") / "files.tar.gz"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    with tarfile.open(FILES) as archive:
        # The modes of folders with keys count, and the stricter filter drops them.
        archive.extractall(tmp_path, filter="tar")
    return tmp_path


def test_a_coordinator_knows_its_rounds_and_devices(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server(["rounds", str(earlier / "coordinator"), "--json"]) == 0
    rounds = json.loads(capsys.readouterr().out)
    assert server(["status", str(earlier / "coordinator"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)

    assert sorted(each["round_number"] for each in rounds) == [1, 2]
    assert status["enrolled_clients"] == 3


def test_a_coordinator_whose_words_were_changed_since_does_not_serve(earlier: Path) -> None:
    # sotto's own list had other words then: a round would train rows as other words.
    command = [sys.executable, "-m", "server.cli", "run", str(earlier / "coordinator")]

    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert run.returncode == 1
    assert "the word list must be that of the run's newest release, one of 100 words" in run.stderr
    assert "copy the release's vocabulary.txt and name the copy as [vocabulary] path" in run.stderr
    assert 'languages = ["en"] if it was sotto\'s' in run.stderr


def test_the_ledger_of_then_is_held_against_its_newest_release(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = earlier / "coordinator"
    assert server(["ledger", str(coordinator), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 2

    with closing(sqlite3.connect(coordinator / "store.sqlite")) as store:
        store.execute("DELETE FROM ledger WHERE sequence = 2")
        store.commit()

    assert server(["ledger", str(coordinator)]) == 1
    assert "lacks the newest of round 2" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
def test_a_device_publishes_its_own_part(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = earlier / "again.part"

    assert client(["publish", str(earlier / "device"), "--out", str(part), "--agree"]) == 0

    before, after = ((earlier / "person.part").read_bytes(), part.read_bytes())
    assert len(before) == len(after)
    # 1,700 float32 that no other device has: a row of 16 and a bias for each of 100 words.
    assert "2 tensors, signed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["keyboard", "shared.zip", "image.zip"])
def test_a_bundle_is_verified(earlier: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(["verify", str(earlier / name)]) == 0
    assert "digests: fit" in capsys.readouterr().out


def test_a_keyboard_suggests_for_a_person(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person = str(earlier / "person")

    assert export(["suggest", str(earlier / "keyboard"), "the", "--person", person]) == 0

    assert capsys.readouterr().out.strip()


def test_a_file_of_everybody_is_inspected(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(["inspect", str(earlier / "people")]) == 0
    assert "fedtp" in capsys.readouterr().out


def test_a_release_of_a_finished_run_is_exported_as_it_was(earlier: Path) -> None:
    out = earlier / "again"

    assert export(["keyboard", str(earlier / "people-run"), "--out", str(out)]) == 0

    assert export(["verify", str(out)]) == 0


def test_a_run_of_words_that_were_changed_since_is_not_gone_on_with(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", str(earlier / "run.toml"), "--data", str(earlier / "texts"), "--seed", "1"]
    lines = (earlier / "run/metrics.jsonl").read_text()

    # sotto's own list had other words then.
    assert simulate([*run, "--out", str(earlier / "run")]) == 1

    told = capsys.readouterr().err
    assert "the word list must be that of the run's newest release, one of 100 words" in told
    assert "or begin another run in another folder" in told
    assert (earlier / "run/metrics.jsonl").read_text() == lines


def test_a_run_that_was_killed_goes_on_where_it_stood(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = read_release(earlier / "run/releases/latest").vocabulary
    monkeypatch.setattr("server.config.word_list.shipped_vocabulary", lambda size: words)
    run = ["run", str(earlier / "run.toml"), "--data", str(earlier / "texts"), "--seed", "1"]
    lines = (earlier / "run/metrics.jsonl").read_text().splitlines()

    assert simulate([*run, "--out", str(earlier / "run")]) == 0
    assert simulate([*run, "--out", str(earlier / "undisturbed")]) == 0

    # Each line holds the seconds of its round, so a round that was made again would differ.
    # The sixth had its line but no checkpoint when the run was killed.
    went_on = (earlier / "run/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert went_on[:5] == lines[:5]
    assert len(went_on) == 12
    resumed, undisturbed = (
        read_release(earlier / name / "releases/latest").parameters
        for name in ("run", "undisturbed")
    )
    # Processors differ in the last bits of float32, and the first rounds ran on another one.
    assert resumed == pytest.approx(undisturbed, abs=1e-5)
