import base64
import io
import re
import sys
import wave
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from edge_client.datasets.sound_file import Sound
from edge_client.datasets.speech_set import Clip
from models.listening.recogniser import RecogniserSettings, SpeechRecogniser
from models.settings.audio import MelSettings
from simulation.listening.corpus import Corpus, Real
from simulation.listening.recogniser_training import TrainingSettings, train_recogniser
from simulation.listening.session import listen
from simulation.listening.table import ListeningReport, VoiceFigures
from simulation.listening.voices import GriffinLim, Kind, Utterance, Voice
from tests.simulation.listening.stand_ins import HELD_OUT, RATE, Sung, corpus

VOCODER = GriffinLim(MelSettings(), iterations=4)


@dataclass(frozen=True)
class Drawl:
    """Say every frame so many times, and look at the text along the diagonal."""

    times: int
    name: str = "drawl"
    kind: Kind = "voice"
    ended: bool = True
    told: list[str] = field(default_factory=list)

    def say(self, real: Real) -> Utterance:
        self.told.append(real.clip.name)
        straight = torch.eye(len(real.clip.text)).repeat_interleave(self.times, dim=0)
        everywhere = torch.full_like(straight, 1 / len(real.clip.text))
        return Utterance(
            real.mel.repeat_interleave(self.times, dim=1),
            attention=torch.stack([everywhere, straight]),
            has_ended=self.ended,
        )


@dataclass(frozen=True)
class Wordless:
    """Say one and the same spectrogram, whatever is asked for."""

    mel: Tensor
    name: str = "wordless"
    kind: Kind = "voice"

    def say(self, real: Real) -> Utterance:
        del real
        return Utterance(self.mel, has_ended=False)


@pytest.fixture(scope="module")
def sung() -> Corpus:
    return corpus()


@pytest.fixture(scope="module")
def recogniser(one_thread_in_module: None, sung: Corpus) -> SpeechRecogniser:
    return train_recogniser(
        sung.labelled(sung.train),
        network=RecogniserSettings(channels=24, hidden_size=24),
        training=TrainingSettings(epochs=150, batch_size=4, learning_rate=2e-2),
    )


def heard(
    sung: Corpus, recogniser: SpeechRecogniser, folder: Path, *voices: Voice, clip_count: int = 1
) -> ListeningReport:
    return listen(
        sung,
        voices,
        folder,
        recogniser=recogniser,
        vocoder=VOCODER,
        vocoder_name="four steps",
        clip_count=clip_count,
    )


def by_name(report: ListeningReport) -> dict[str, VoiceFigures]:
    return {row.voice: row for row in report.voices}


@pytest.mark.slow
def test_every_table_has_its_ceiling_and_floors_in_order_of_worth(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    voice = Drawl(times=1)

    report = heard(sung, recogniser, tmp_path, voice, clip_count=16)
    rows = by_name(report)

    assert [(row.voice, row.kind) for row in report.voices] == [
        ("real clip", "reference"),
        ("copy synthesis", "ceiling"),
        ("drawl", "voice"),
        ("other sentence", "floor"),
        ("mean spectrum", "floor"),
    ]
    assert voice.told == ["anna/t0", "anna/t1"]
    assert rows["real clip"].mcd_db == pytest.approx(0, abs=1e-6)
    assert rows["real clip"].stoi == pytest.approx(1, abs=1e-2)
    # Saying the clip's own spectrogram is copy synthesis, to the last digit.
    assert rows["drawl"].mcd_db == rows["copy synthesis"].mcd_db > 0
    assert rows["other sentence"].mcd_db > 1.5 * rows["copy synthesis"].mcd_db
    assert rows["mean spectrum"].mcd_db > 1.5 * rows["copy synthesis"].mcd_db
    # Four letters sung at four heights are learnt; the other sentence has other letters.
    assert rows["real clip"].character_error_rate == report.recogniser_error_rate == 0
    assert rows["other sentence"].character_error_rate > 0.4
    # There is one singer.
    assert rows["real clip"].speaker_accuracy is None


@pytest.mark.slow
def test_one_page_has_every_sound_and_needs_nothing_else(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    report = heard(sung, recogniser, tmp_path, Drawl(times=1, name="<drawl>"), clip_count=16)

    page = (tmp_path / "listening.html").read_text()

    players = re.findall(r'src="data:audio/flac;base64,([^"]+)"', page)
    rows = [(row.voice, said.clip) for row in report.voices for said in row.utterances]
    clips = [said.clip for said in report.voices[0].utterances]
    by_text = sorted(rows, key=lambda row: clips.index(row[1]))
    assert len(players) == len(rows) == 10
    for (voice, clip), coded in zip(by_text, players, strict=True):
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(coded)), dtype="int16")
        kept = soundfile.read(
            tmp_path / re.sub(r"[^\w+.-]+", "-", voice) / f"{clip.replace('/', '-')}.wav",
            dtype="int16",
        )
        assert rate == kept[1] == RATE
        assert (samples == kept[0]).all()
    # One picture a text, and a row of figures a voice; no address to fetch anything from.
    assert page.count('src="data:image/png;base64,') == len(clips) == 2
    assert "<td>&lt;drawl&gt;</td><td>voice</td>" in page
    assert "<drawl>" not in page
    assert "://" not in page
    assert all(src.startswith("data:") for src in re.findall(r'src="([^"]*)"', page))


@pytest.mark.slow
def test_the_straightest_head_is_measured_and_the_stop_counted(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    voices = (
        Drawl(times=1, name="in time"),
        Drawl(times=1, name="cut off", ended=False),
        Drawl(times=2, name="too slow"),
    )

    rows = by_name(heard(sung, recogniser, tmp_path, *voices))

    assert rows["in time"].diagonality == pytest.approx(1)
    assert rows["in time"].stop_accuracy == 1
    assert rows["cut off"].stop_accuracy == 0
    assert rows["too slow"].stop_accuracy == 0
    assert rows["copy synthesis"].stop_accuracy is None
    assert rows["copy synthesis"].diagonality is None
    # Warping takes half the speed away; without it every frame but the first would be elsewhere.
    assert rows["too slow"].mcd_db < rows["mean spectrum"].mcd_db


@pytest.mark.slow
def test_sound_pictures_and_figures_are_kept(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    report = heard(sung, recogniser, tmp_path, Drawl(times=1), clip_count=2)

    kept = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    pairs = {f"{row.voice.replace(' ', '-')}/anna-t{n}" for row in report.voices for n in (0, 1)}
    assert kept == {
        *("listening.md", "listening.json", "listening.html", "anna-t0.png", "anna-t1.png"),
        *(f"{pair}.wav" for pair in pairs),
    }
    with wave.open(str(tmp_path / "real-clip" / "anna-t0.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        assert file.getframerate() == RATE
    real = sung.read(sung.held_out[0]).sound.numpy()
    assert np.abs(samples / 32767 - real).max() < 1 / 32767
    again = msgspec.json.decode((tmp_path / "listening.json").read_bytes(), type=ListeningReport)
    assert again == report
    table = (tmp_path / "listening.md").read_text()
    assert all(f"| {row.voice} | {row.kind} |" in table for row in report.voices)
    assert all(f"- {note}" in table for note in report.notes)


@pytest.mark.slow
def test_a_voice_that_hardly_says_anything_is_measured_like_any_other(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    silence = torch.full((80, 40), -11.5)

    rows = by_name(
        heard(
            *(sung, recogniser, tmp_path),
            *(Wordless(silence), Wordless(silence[:, :1], name="one frame")),
        )
    )

    for name in ("wordless", "one frame"):
        assert rows[name].character_error_rate == 1
        assert rows[name].stop_accuracy == 0
        assert rows[name].mcd_db > rows["copy synthesis"].mcd_db


def test_what_could_not_be_measured_is_said(
    sung: Corpus,
    recogniser: SpeechRecogniser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyworld", None)

    report = heard(sung, recogniser, tmp_path)

    assert [row.f0_rmse_hz for row in report.voices] == [None] * 4
    # Of one clip, by whom: it itself, its copy, and the two floors.
    (said,) = (note for note in report.notes if "pyworld is missing" in note)
    assert said.startswith("pitch was not measured on 4 utterances: ")
    assert "| – |" in (tmp_path / "listening.md").read_text()


@pytest.mark.parametrize(
    ("mel", "message"),
    [
        (torch.full((80, 40), float("nan")), "must be finite, got 3200"),
        (torch.zeros(80, 0), "a frame at least"),
    ],
)
def test_what_cannot_be_listened_to_is_refused(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path, mel: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        heard(sung, recogniser, tmp_path, Wordless(mel))


def test_two_voices_of_one_name_are_refused(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="different names"):
        heard(sung, recogniser, tmp_path, Drawl(times=1), Drawl(times=2))


def test_clips_to_listen_to_are_spread_over_all(sung: Corpus) -> None:
    assert [clip.text for clip in sung.listened_to(1)] == [f" {HELD_OUT[0]}."]
    assert len(sung.listened_to(9)) == 2
    with pytest.raises(ValueError, match="must be >= 1, got 0"):
        sung.listened_to(0)


class Muffled(Sung):
    """A singer behind a curtain, who sings what another one sings."""

    def read(self) -> Sound:
        samples = super().read().channels
        smoothed = np.convolve(samples[:, 0], np.ones(12) / 12, mode="same")
        return Sound(smoothed[:, np.newaxis].astype(np.float32), RATE)


@pytest.mark.slow
def test_an_utterance_is_its_speakers_or_somebody_elses(
    sung: Corpus, recogniser: SpeechRecogniser, tmp_path: Path
) -> None:
    def muffled(clip: Clip) -> Clip:
        assert isinstance(clip.sound, Sung)
        return Clip(clip.name.replace("anna", "ben"), "ben", clip.text, Muffled(clip.sound.words))

    both = replace(
        sung,
        train=(*sung.train, *map(muffled, sung.train)),
        held_out=(*sung.held_out, *map(muffled, sung.held_out)),
    )
    behind = both.read(both.held_out[-1]).mel

    rows = by_name(heard(both, recogniser, tmp_path, Wordless(behind), clip_count=4))

    assert rows["real clip"].speaker_accuracy == 1
    assert rows["wordless"].speaker_accuracy == 0.5
