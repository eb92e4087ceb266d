from pathlib import Path

import msgspec
import pytest
import torch

from export.making.released_model import export_bundle, quantise_bundle
from export.making.speech import VoiceKind
from export.releases.release import find_release, read_release
from simulation.cli import main
from simulation.listening.bundle_voices import open_bundle
from simulation.listening.run_voices import open_voices
from simulation.listening.table import ListeningReport
from tests.simulation.listening.test_run_voices import SINGERS, TOML, finished_run

QUICK = ("--clips", "1", "--epochs", "1", "--iterations", "2")
# Without dropout torch and onnxruntime, which draw differently, say the same.
EVERYONES = TOML.replace("speaker_size = 4", "speaker_size = 0\nprenet_dropout = 0.0")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return finished_run(tmp_path_factory.mktemp("everyones"), EVERYONES, SINGERS)


@pytest.fixture(scope="module")
def bundles(folders: tuple[Path, Path]) -> tuple[Path, Path]:
    whole, rounded = (folders[0].with_name(name) for name in ("voice.zip", "rounded.zip"))
    export_bundle(VoiceKind(), read_release(find_release(folders[0])), whole)
    quantise_bundle(whole, rounded)
    return whole, rounded


@pytest.mark.slow
def test_an_exported_voice_says_what_the_trained_one_says(
    folders: tuple[Path, Path], bundles: tuple[Path, Path]
) -> None:
    corpus, (voice,), *_ = open_voices(*folders)
    exact, rounded = (open_bundle(bundle, corpus.mel) for bundle in bundles)
    assert (exact.name, rounded.name) == ("voice.zip, float32", "rounded.zip, int8")

    for real in map(corpus.read, corpus.held_out):
        trained, shipped = voice.say(real), exact.say(real)
        shared = min(trained.mel.shape[1], shipped.mel.shape[1])
        assert shared > 0
        torch.testing.assert_close(
            shipped.mel[:, :shared], trained.mel[:, :shared], rtol=0, atol=1e-3
        )
        assert not torch.equal(rounded.say(real).mel[:, :shared], shipped.mel[:, :shared])


@pytest.mark.slow
def test_exported_voices_stand_in_the_table(
    folders: tuple[Path, Path], bundles: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = folders
    given = [word for bundle in bundles for word in ("--bundle", str(bundle))]

    assert main(["listen", str(run), "--data", str(data), *given, *QUICK, "--json"]) == 0

    report = msgspec.json.decode(capsys.readouterr().out, type=ListeningReport)
    names = [row.voice for row in report.voices if row.kind == "voice"]
    assert names == ["round 2, 2+2 layers", "voice.zip, float32", "rounded.zip, int8"]
    for folder in ("voice.zip-float32", "rounded.zip-int8"):
        assert list((run / "listening" / folder).glob("*.wav"))


@pytest.mark.slow
def test_a_voice_that_cannot_be_held_against_the_clips_is_refused(
    folders: tuple[Path, Path],
    bundles: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus, *_ = open_voices(*folders)
    with pytest.raises(ValueError, match=r"its model.mel must be .*mel_count=21"):
        open_bundle(bundles[0], msgspec.structs.replace(corpus.mel, mel_count=21))
    speakers, _ = finished_run(tmp_path, TOML, SINGERS)
    export_bundle(VoiceKind(), read_release(find_release(speakers)), tmp_path / "speakers.zip")
    with pytest.raises(ValueError, match="listen to a whole voice"):
        open_bundle(tmp_path / "speakers.zip", corpus.mel)
    capsys.readouterr()

    command = ["listen", "--copy-synthesis", "recordings", "--bundle", str(bundles[0])]
    assert main(command) == 1
    assert "--bundle needs the folder of the run" in capsys.readouterr().err
