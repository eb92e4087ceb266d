import io
import math
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.registry import load_speech
from edge_client.datasets.speech_set import Clip, SpeechSet
from edge_client.datasets.text_set import DatasetError
from models.settings.audio import ClipSettings
from models.text.speech_alphabet import SpeechTextSettings

RATE = 22_050
CLIPS = ClipSettings()


def tone(seconds: float = 0.5, rate: int = RATE) -> NDArray[np.float32]:
    times = np.arange(round(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * 300 * times)).astype(np.float32)


def write(
    path: Path, samples: NDArray[np.float32] | None = None, rate: int = RATE, **how: str
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(rate=rate) if samples is None else samples, rate, **how)
    return path


def load(name: str, path: Path, text: SpeechTextSettings | None = None) -> SpeechSet:
    return load_speech(name, path, clip_settings=CLIPS, text_settings=text or SpeechTextSettings())


def read(clip: Clip) -> torch.Tensor:
    return read_clip(clip, CLIPS, sample_rate_hz=RATE)


def ljspeech(folder: Path, *lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("below", ["", "ljspeech", "LJSpeech-1.1"])
@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_ljspeech_layout_gives_clips_with_their_normalised_text(
    tmp_path: Path, below: str, suffix: str
) -> None:
    folder = ljspeech(
        tmp_path / below, "LJ001-0001|Dr. No, in 1465|Doctor No", 'LJ001-0002|"Two" of them|'
    )
    for name in ("LJ001-0001", "LJ001-0002"):
        write(folder / "wavs" / f"{name}{suffix}")

    speech = load("ljspeech", tmp_path)

    assert [(clip.name, clip.text) for clip in speech.clips] == [
        ("LJ001-0001", " doctor no."),
        ("LJ001-0002", " two of them."),
    ]
    assert len({clip.speaker for clip in speech.clips}) == 1
    assert speech.test == ()
    assert speech.notes == ("2 characters of the texts became plain ones: U+0022",)
    assert read(speech.clips[0]).shape == (RATE // 2,)


def test_kathleen_is_one_voice_in_the_same_layout(tmp_path: Path) -> None:
    write(ljspeech(tmp_path / "kathleen", "a1|One, etc.|One, etc.") / "wavs" / "a1.flac")

    speech = load("kathleen", tmp_path)

    assert [(clip.speaker, clip.text) for clip in speech.clips] == [
        ("kathleen", " one, et cetera.")
    ]


def test_broken_lines_are_all_named_and_nothing_of_what_they_say(tmp_path: Path) -> None:
    ljspeech(tmp_path, "a|fine", "secret", "", "b||", "c|x|y|secret", "../d|x", "|secret")

    with pytest.raises(DatasetError) as caught:
        load("ljspeech", tmp_path)

    message = str(caught.value)
    assert message.startswith("5 lines of")
    for number, fault in (
        (2, "1 fields"),
        (4, "no text"),
        (5, "4 fields"),
        (6, "no name"),
        (7, "no name"),
    ):
        assert f"line {number} " in message and fault in message
    assert "secret" not in message


def test_text_without_sound_is_named(tmp_path: Path) -> None:
    write(ljspeech(tmp_path, "a|one", "b|two") / "wavs" / "a.wav")

    with pytest.raises(DatasetError, match=r"^1 recordings cannot be used: .*b\.wav is missing"):
        load("ljspeech", tmp_path)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    write(ljspeech(tmp_path, "a|one", "a|two") / "wavs" / "a.wav")

    with pytest.raises(DatasetError, match="a is there 2 times"):
        load("ljspeech", tmp_path)


def test_only_the_first_five_faults_are_listed(tmp_path: Path) -> None:
    ljspeech(tmp_path, *(f"n{number}|text" for number in range(9)))

    with pytest.raises(DatasetError, match=r"^9 recordings.*n4\.wav is missing; and 4 more$"):
        load("ljspeech", tmp_path)


def test_signs_without_a_reading_are_refused_by_name_of_the_clip_or_counted(tmp_path: Path) -> None:
    folder = ljspeech(tmp_path, "a|one \U0001f600", "b|two")
    for name in "ab":
        write(folder / "wavs" / f"{name}.wav")

    with pytest.raises(DatasetError, match=r"^1 recordings cannot be used: a: .*U\+1F600 x 1"):
        load("ljspeech", tmp_path)
    speech = load("ljspeech", tmp_path, SpeechTextSettings(unknown="drop"))

    assert [clip.text for clip in speech.clips] == [" one.", " two."]
    assert speech.notes == ("1 characters of the texts were left out: U+1F600",)


def test_an_empty_metadata_file_is_no_data_set(tmp_path: Path) -> None:
    ljspeech(tmp_path, "")

    with pytest.raises(DatasetError, match="must have a recording, got none"):
        load("ljspeech", tmp_path)


def one_clip(tmp_path: Path, make: Callable[[Path], object], suffix: str = ".wav") -> Path:
    folder = ljspeech(tmp_path, "a|one")
    (folder / "wavs").mkdir()
    make(folder / "wavs" / f"a{suffix}")
    return folder


def cut(path: Path) -> None:
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"no sound at all" * 20), "must be a WAV or FLAC file"),
        (lambda path: write(path, format="AIFF"), "must be a WAV or FLAC file, got AIFF"),
        (lambda path: write(path, tone(0)), "must have samples, got none"),
        (lambda path: write(path, tone(0.1)), r"at least 0\.12 s, got 0\.10 s; take it out"),
        (lambda path: write(path, tone(60)), r"at most 20 s, got 60\.00 s; cut it at a pause"),
        (lambda path: write(path, tone(rate=4000), 4000), "8000 to 192000 samples .* got 4000"),
        (cut, r"is cut short: its header states 22050 bytes of sound, 11003 are there"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_when_the_set_is_loaded(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    folder = one_clip(tmp_path, make)

    with pytest.raises(DatasetError, match=rf"a\.wav.*{message}"):
        load("ljspeech", folder)


def with_nan(path: Path) -> None:
    samples = tone()
    samples[7] = math.nan
    write(path, samples, subtype="FLOAT")


@pytest.mark.parametrize(
    ("make", "suffix", "message"),
    [
        (with_nan, ".wav", "samples must be finite, got 1 that are not"),
        (lambda path: write(path, np.zeros(RATE, np.float32)), ".wav", "got silence alone"),
        (cut, ".flac", "is (damaged|cut short)"),
        (
            lambda path: write(path, np.concatenate([tone(0.05), np.zeros(RATE, np.float32)])),
            ".wav", r"at least 0\.12 s, got 0\.0[678] s.*silence around it left out",
        ),
    ],
)  # fmt: skip
def test_sound_that_cannot_be_used_is_refused_when_it_is_read(
    tmp_path: Path, make: Callable[[Path], object], suffix: str, message: str
) -> None:
    (clip,) = load("ljspeech", one_clip(tmp_path, make, suffix)).clips

    with pytest.raises(DatasetError, match=rf"a{suffix}.*{message}"):
        read(clip)


def test_stereo_at_another_rate_becomes_one_channel_at_ours_and_one_loudness(
    tmp_path: Path,
) -> None:
    # The second channel is silent: the mean has half the amplitude, the loudness brings it back.
    both = np.stack([tone(rate=48_000), np.zeros(24_000, np.float32)], axis=1)
    (clip,) = load("ljspeech", one_clip(tmp_path, lambda path: write(path, both, 48_000))).clips

    samples = read(clip)

    assert samples.dtype == torch.float32
    assert samples.shape == (RATE // 2,)
    assert 20 * math.log10(float(samples.square().mean().sqrt())) == pytest.approx(-23, abs=0.1)


def test_an4_has_its_speakers_in_both_layouts(tmp_path: Path) -> None:
    plain, official = tmp_path / "plain" / "an4", tmp_path / "official"
    ljspeech(plain, "fash/an251-fash-b|YES|fash", "mgah/an1-mgah-b|GO|mgah")
    (official / "etc").mkdir(parents=True)
    for part, speaker, name, text in (
        ("train", "fash", "an251-fash-b", "YES"),
        ("test", "mgah", "an1-mgah-b", "GO"),
    ):
        (official / f"etc/an4_{part}.fileids").write_text(f"an4_clstk/{speaker}/{name}\n")
        (official / f"etc/an4_{part}.transcription").write_text(f"<s> {text} </s> ({name})\n")
        write(plain / "wavs" / speaker / f"{name}.flac", rate=16_000)
        write(official / "wav/an4_clstk" / speaker / f"{name}.sph", rate=16_000, format="NIST")

    first, second = load("an4", tmp_path / "plain"), load("an4", official)

    assert [(clip.name, clip.speaker, clip.text) for clip in first.clips] == [
        ("fash/an251-fash-b", "fash", " yes."),
        ("mgah/an1-mgah-b", "mgah", " go."),
    ]
    assert [(clip.speaker, clip.text) for clip in second.clips] == [("fash", " yes.")]
    assert [(clip.speaker, clip.text) for clip in second.test] == [("mgah", " go.")]
    assert read(second.test[0]).shape == (RATE // 2,)


@pytest.mark.parametrize(
    ("ids", "lines", "message"),
    [
        ("a/b/x\n", "<s> YES </s> (x)\nno name\n", r"1 lines .* broken, .*: line 2"),
        ("a/b/x\na/b/y\n", "YES (x)\n", r"1 recordings .* have no line .*: y"),
        ("../../x\n", "YES (x)\n", "must name files below wav/, got 1"),
    ],
)
def test_an4s_broken_lists_are_refused(tmp_path: Path, ids: str, lines: str, message: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/an4_train.fileids").write_text(ids)
    (tmp_path / "etc/an4_train.transcription").write_text(lines)

    with pytest.raises(DatasetError, match=message):
        load("an4", tmp_path)


def test_an4_without_a_speaker_is_refused(tmp_path: Path) -> None:
    ljspeech(tmp_path, "a/b|YES")

    with pytest.raises(DatasetError, match=r"must be speaker/id\|TEXT\|speaker: a/b"):
        load("an4", tmp_path)


def digits_archive(path: Path, *names: str) -> Path:
    content = io.BytesIO()
    soundfile.write(content, tone(rate=8000), 8000, format="FLAC")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, content.getvalue())
    return path


NAMES = ("recordings/7_theo_4.flac", "recordings/0_jackson_5.flac", "recordings/README")


@pytest.mark.parametrize("unpacked", [False, True])
def test_spoken_digits_are_read_from_the_archive_and_from_its_folder(
    tmp_path: Path, unpacked: bool
) -> None:
    archive = digits_archive(tmp_path / "fsdd" / "recordings.zip", *NAMES)
    if unpacked:
        with zipfile.ZipFile(archive) as members:
            members.extractall(tmp_path / "fsdd")
        archive.unlink()

    speech = load("fsdd", tmp_path)

    assert [(clip.name, clip.speaker, clip.text) for clip in speech.clips] == [
        ("0_jackson_5", "jackson", " zero.")
    ]
    assert [(clip.name, clip.speaker, clip.text) for clip in speech.test] == [
        ("7_theo_4", "theo", " seven.")
    ]
    assert read(speech.clips[0]).shape == (RATE // 2,)


def test_a_damaged_archive_a_wrong_name_and_a_bomb_are_refused(tmp_path: Path) -> None:
    wrong = digits_archive(tmp_path / "wrong.zip", "recordings/eleven.flac")
    torn = digits_archive(tmp_path / "torn.zip", *NAMES)
    torn.write_bytes(torn.read_bytes()[:-40])
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("1_x_1.wav", bytes(2**23))

    with pytest.raises(DatasetError, match=r"named <digit>_<speaker>_<number>: .*eleven\.flac"):
        load("fsdd", wrong)
    with pytest.raises(DatasetError, match=r"torn\.zip is damaged"):
        load("fsdd", torn)
    with pytest.raises(DatasetError, match="must have at most 4194304 bytes, got 8388608"):
        load("fsdd", tmp_path / "bomb.zip")


def test_a_folder_of_recordings_has_a_speaker_for_each_subfolder(tmp_path: Path) -> None:
    for name in ("hello.wav", "ann/one.flac", "ben/deep/two.wav"):
        write(tmp_path / name).with_suffix(".txt").write_text(f"I am\n{Path(name).stem}")
    (tmp_path / ".hidden").write_text("passed over")

    speech = load("recordings", tmp_path)

    assert [(clip.name, clip.speaker, clip.text) for clip in speech.clips] == [
        ("ann/one.flac", "ann", " i am one."),
        ("ben/deep/two.wav", "ben", " i am two."),
        ("hello.wav", tmp_path.name, " i am hello."),
    ]


def test_a_recording_without_text_and_a_text_without_recording_are_both_named(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.wav")
    (tmp_path / "b.txt").write_text("one")

    with pytest.raises(
        DatasetError, match=r"^2 files .*a\.wav has no a\.txt; .*b\.txt has no b\.wav"
    ):
        load("recordings", tmp_path)


@pytest.mark.parametrize("name", ["ljspeech", "kathleen", "an4", "fsdd", "recordings"])
def test_a_set_that_is_not_there_is_said_to_be_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=f"{name}.*{tmp_path.name}"):
        load(name, tmp_path)
    with pytest.raises(DatasetError, match=f"{name} needs a path"):
        load_speech(name, clip_settings=CLIPS, text_settings=SpeechTextSettings())


def test_an_unknown_set_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"one of espeak, espeak-one, ljspeech, .*, got 'vctk'"):
        load("vctk", tmp_path)


def test_without_soundfile_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = one_clip(tmp_path, write)
    monkeypatch.setitem(sys.modules, "soundfile", None)

    with pytest.raises(DatasetError, match=r"soundfile is missing; install sotto\[speech\]"):
        load("ljspeech", folder)
