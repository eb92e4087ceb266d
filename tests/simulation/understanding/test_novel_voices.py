"""A finished voice learns to sound like someone new from seconds of their speech."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from edge_client.personalisation.adapted import comparison_of
from edge_client.personalisation.own_model import own_model
from models.networks.flat_parameters import read_parameters
from models.plan.plan import plan_schema
from models.tasks.speech_examples import SpeechClip, SpeechExamples
from simulation.cli import main
from simulation.listening.run_voices import RunVoice, Speakers, open_voices
from simulation.listening.table import ListeningReport
from simulation.population.novel_clients import novel_names
from simulation.understanding.finished_run import open_run
from tests.simulation.listening.test_run_voices import SINGERS, TOML, finished_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a run of two singers' voices that kept the third out, and all recordings."""
    settings = TOML.replace("[model]\n", "novel_share = 0.3\n\n[model]\n", 1)
    return finished_run(tmp_path_factory.mktemp("novel"), settings, SINGERS | {"cleo": "klmn"})


def curve_of(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, Any]:
    run, data = folders
    png = run.with_name("novel.png")
    command = ["novel", str(run), "--data", str(data), "--png", str(png), "--epochs", "3", *more]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    curve: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])[str(run)]
    return curve


@pytest.mark.slow
def test_who_speaks_is_fitted_and_nothing_else(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    everything = curve_of(folders, capsys)
    seconds = curve_of(folders, capsys, "--seconds", "0.5")

    for curve in (everything, seconds):
        # A vector of four numbers says who speaks.
        assert (curve["figure"], curve["novel_clients"], curve["fitted_values"]) == ("mel_l1", 1, 4)
        (told,) = curve["people"].values()
        assert told.endswith("in 9 clips" if curve is everything else "in 1 clip")
        assert curve["values"][3] < curve["values"][0]
    # The same voice before any fitting; then one knows more of it than the other.
    assert everything["values"][0] == seconds["values"][0]
    assert everything["values"][1:] != seconds["values"][1:]


def test_a_second_fit_replaces_what_the_first_kept(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, client = folders[0], _novel_client(folders[0])
    kept = []
    for seconds in ("0.5", "2"):
        assert curve_of(folders, capsys, "--seconds", seconds)["kept"]
        state = open_run(run).kept_by(client)
        assert state is not None
        kept.append(state.personal)

    assert not torch.equal(*kept)
    assert len(list((run / "states" / client).iterdir())) == 1


@pytest.mark.slow
def test_novel_speakers_are_listened_to_in_a_row_of_their_own(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = folders
    client = _novel_client(run)
    curve_of(folders, capsys, "--seconds", "2")
    quick = ["--clips", "1", "--epochs", "1", "--iterations", "2", "--json"]
    assert main(["listen", str(run), "--data", str(data), *quick]) == 0

    report = msgspec.json.decode(capsys.readouterr().out, type=ListeningReport)
    rows = {row.voice: row for row in report.voices}
    assert [row.kind for row in report.voices] == [
        *("reference", "ceiling", "voice", "voice", "floor", "floor")
    ]
    novel = {own.clip for own in rows["novel speakers, fitted to 2 s"].utterances}
    trained = {own.clip for own in rows["round 2, 2+2 layers"].utterances}
    assert not novel & trained
    assert {own.clip for own in rows["real clip"].utterances} == trained
    files = {path.name for path in (run / "listening").iterdir()}
    assert "novel-speakers-fitted-to-2-s" in files
    assert {f"{name.replace('/', '-')}.png" for name in novel | trained} <= files
    assert any("1 speakers who took no part" in note for note in report.notes)

    corpus, _, newcomers, _ = open_voices(run, data)
    assert newcomers is not None
    assert isinstance(newcomers.voice, RunVoice)
    (clip,) = newcomers.corpus.held_out
    assert clip.speaker not in {own.speaker for own in corpus.held_out}
    said = newcomers.voice.say(corpus.read(clip)).mel
    # The vector that was fitted speaks, and not one of zeros.
    (run / "states" / client / "000002.bin").rename(run / "aside.bin")
    unfitted = replace(newcomers.voice, speakers=Speakers(open_run(run), {}, client))
    assert not torch.equal(said, unfitted.say(corpus.read(clip)).mel)
    (run / "aside.bin").rename(run / "states" / client / "000002.bin")


@pytest.mark.slow
def test_where_devices_adapt_a_newcomer_gets_a_whole_voice(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = curve_of(folders, capsys)["values"]
    adapts = (
        '[personalisation]\nmethod = "adapted"\nepochs = 3\nlearning_rate = 0.01\nfirst_round = 2'
    )
    settings = TOML.replace("[model]\n", "novel_share = 0.3\n\n[model]\n", 1)
    adapting = finished_run(tmp_path, f"{settings}\n{adapts}\n", SINGERS | {"cleo": "klmn"})

    curve = curve_of(adapting, capsys)

    run = open_run(adapting[0])
    client = _novel_client(adapting[0])
    # A round trains as ever, so that the vectors are those of the run beside it; then all adapts.
    assert curve["values"][:3] == alone[:3]
    assert curve["values"][3] < alone[3]
    assert curve["kept"]
    (told,) = curve["people"].values()
    assert "s of speech in 9 clips; adapted: better on this device's newest data" in told
    kept = run.kept_by(client)
    assert kept is not None
    assert comparison_of(kept.extras).keeps_own
    own = own_model(plan_schema(run.plan), kept.extras)
    assert torch.equal(read_parameters(run.network_of(client), plan_schema(run.plan)), own)
    # Who trained adapted in the second of two rounds.
    trained = run.kept_by({"device-0001", "device-0002", "device-0003"}.difference({client}).pop())
    assert trained is not None
    assert comparison_of(trained.extras).target_count


@pytest.mark.slow
def test_what_is_generated_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = (
        '[personalisation]\nmethod = "fedtp"\nhypernetwork = {hidden_size = 8, embedding_size = 4}'
    )
    settings = TOML.replace("[model]\n", "novel_share = 0.3\n\n[model]\n", 1)
    folders = finished_run(tmp_path, f"{settings}\n{made}\n", SINGERS | {"cleo": "klmn"})

    assert not curve_of(folders, capsys)["kept"]

    run, data = folders
    assert not (run / "novel.json").exists()
    assert open_voices(run, data).newcomers is None


def _novel_client(run: Path) -> str:
    opened = open_run(run)
    (novel,) = novel_names(["device-0001", "device-0002", "device-0003"], opened.config.data)
    return novel


def test_seconds_are_taken_clip_by_clip() -> None:
    clips = [
        SpeechClip(torch.full((frames, 2), float(frames)), torch.tensor([1]))
        for frames in (4, 3, 5)
    ]
    examples = SpeechExamples.of(clips)

    kept = [examples.at_most(count).lengths[:, 0].tolist() for count in (0, 4, 6, 7, 11, 12, 99)]
    assert kept == [[4], [4], [4], [4, 3], [4, 3], [4, 3, 5], [4, 3, 5]]


def test_seconds_of_no_speech_are_refused(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = folders
    command = ["novel", str(run), "--data", str(data), "--png", str(tmp_path / "n.png")]
    assert main([*command, "--seconds", "0"]) == 1
    assert "seconds of speech must be > 0 and finite, got 0.0" in capsys.readouterr().err
