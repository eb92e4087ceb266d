"""A voice that is loaded through the door says what the command says."""

from pathlib import Path

import pytest

import sotto
from export.cli import main
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from tests.export.voices import speech_plan, speech_release


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voice")
    # A stop of -1 in logits: no step is the last, so the sound is cut off.
    release = speech_release(folder, speech_plan(), stop=-1.0)
    export_bundle(VoiceKind(), release, folder / "voice.zip")
    return folder / "voice.zip"


def test_a_voice_says_what_the_command_writes(bundle: Path, tmp_path: Path) -> None:
    sound = sotto.Voice.load(bundle).say("a sea", seed=1, longest_s=0.5)

    flags = ["--seed", "1", "--longest-s", "0.5", "--out", str(tmp_path / "command.wav")]
    assert main(["speak", str(bundle), "a sea", *flags]) == 0
    saved = sound.save(tmp_path / "door.wav")
    assert saved.read_bytes() == (tmp_path / "command.wav").read_bytes()
    assert not sound.has_ended
    assert sound.samples.shape == (round(sound.seconds * sound.sample_rate_hz),)
    assert "audio/wav;base64,UklGR" in sound._repr_html_()


def test_a_text_that_cannot_be_said_is_refused(bundle: Path, tmp_path: Path) -> None:
    voice = sotto.Voice.load(bundle)

    with pytest.raises(ValueError, match="speed must be in"):
        voice.say("a", speed=9)
    with pytest.raises(ValueError, match=r"must|empty"):
        voice.say("")
    with pytest.raises(ValueError, match=r"\.wav, \.flac"):
        voice.say("a", longest_s=0.1).save(tmp_path / "sound.txt")
    with pytest.raises(ValueError, match="one of another kind"):
        sotto.Keyboard.load(bundle)
