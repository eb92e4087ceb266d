"""Files of sound, read back by libsndfile."""

import io
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import soundfile
from numpy.testing import assert_allclose, assert_array_equal

from export.speaking.sound_file import (
    SoundEncoder,
    SoundFormat,
    SoundFormatError,
    encode_sound,
    format_of,
)

RATE_HZ = 22_050
# A second of 441 Hz, as loud as half of what there is.
WAVE = (0.5 * np.sin(2 * np.pi * 441 / RATE_HZ * np.arange(RATE_HZ))).astype(np.float32)


@pytest.mark.parametrize("wanted", ["wav", "flac"])
def test_a_file_without_loss_holds_every_sample(wanted: SoundFormat) -> None:
    sound, rate_hz = soundfile.read(io.BytesIO(encode_sound(WAVE, RATE_HZ, wanted)))

    assert rate_hz == RATE_HZ
    assert_allclose(sound, WAVE, atol=1 / 32_000)


@pytest.mark.parametrize(("wanted", "rate_hz"), [("mp3", RATE_HZ), ("opus", 24_000)])
def test_a_file_with_loss_sounds_alike(wanted: SoundFormat, rate_hz: int) -> None:
    encoded = encode_sound(WAVE, rate_hz, wanted)

    sound, _ = soundfile.read(io.BytesIO(encoded))

    assert len(encoded) < len(WAVE)  # less than a byte a sample
    assert sound[5000:15000].std() == pytest.approx(0.5 / np.sqrt(2), rel=0.05)


def test_bare_samples_are_clipped_and_little_endian() -> None:
    sound = np.array([0, 1, -1, 2, -3, 0.5], dtype=np.float32)

    found = np.frombuffer(encode_sound(sound, RATE_HZ, "pcm"), dtype="<i2")

    # 32767 times 0.5 is 16383.5, which is rounded to the even neighbour.
    assert_array_equal(found, [0, 32767, -32767, 32767, -32767, 16384])


def test_a_rate_that_the_format_does_not_have_becomes_the_next_one() -> None:
    whole = encode_sound(WAVE, RATE_HZ, "opus")
    encoder = SoundEncoder(RATE_HZ, "opus")
    streamed = b"".join([*(encoder.add(part) for part in np.split(WAVE, 5)), encoder.end()])

    for encoded in (whole, streamed):
        sound, rate_hz = soundfile.read(io.BytesIO(encoded))
        assert rate_hz == 24_000
        assert len(sound) == pytest.approx(24_000, abs=10)
        # A second has as many bins as it has waves.
        assert int(np.argmax(np.abs(np.fft.rfft(sound[:24_000], 24_000)))) == 441
    with pytest.raises(SoundFormatError, match=r"mp3 takes sound of at most 48000 Hz, .* 96000"):
        encode_sound(WAVE, 96_000, "mp3")


@pytest.mark.parametrize(("wanted", "loss"), [("wav", 1e-4), ("flac", 1e-4), ("mp3", 0.05)])
def test_a_stream_is_sent_while_it_is_made_and_sounds_as_the_whole(
    wanted: SoundFormat, loss: float
) -> None:
    encoder = SoundEncoder(RATE_HZ, wanted)

    sent = [encoder.add(part) for part in np.split(WAVE, 5)]
    sent.append(encoder.end())

    assert all(sent[:5])  # flushed each time, not kept to the end
    with soundfile.SoundFile(io.BytesIO(b"".join(sent))) as file:
        # Nobody says how long it is, so that no more may be asked for than there is.
        found = np.frombuffer(file.buffer_read(20_000, "int16"), dtype="<i2") / 32_767
    delay = int(np.argmax(np.correlate(found[:4000], WAVE[:1000], "valid")))
    # The first thousand samples are where an encoder without the rest of the past learns.
    assert_allclose(found[delay + 1000 : delay + 15_000], WAVE[1000:15_000], atol=loss)


def test_a_format_that_libsndfile_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundfile, "check_format", lambda *_: False)

    with pytest.raises(SoundFormatError, match="mp3 cannot be encoded here"):
        encode_sound(WAVE, RATE_HZ, "mp3")
    for wanted in get_args(SoundFormat):
        if wanted == "pcm":
            encode_sound(WAVE, RATE_HZ, wanted)


def test_a_files_name_says_its_format() -> None:
    names = ("a.wav", "a.FLAC", "a.mp3", "a.ogg")

    assert [format_of(Path(name)) for name in names] == ["wav", "flac", "mp3", "opus"]
    with pytest.raises(SoundFormatError, match=r"must end in \.wav, .* got 'a\.aiff'"):
        format_of(Path("a.aiff"))
