"""Look at a person's recordings before a round does: how much speech, of whom, and how it sounds.

Nothing is changed or sent, and no finding holds a word of what is said. What no round could read is
refused in the words in which a round would refuse it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.sound_file import Sound
from edge_client.datasets.speech import recordings
from edge_client.datasets.speech_set import gather
from edge_client.datasets.text_set import DatasetError, split_in_order
from edge_client.owner.finding import Finding, counted
from models.settings.voice import TransformerTtsSettings

_FRAME_S = 0.025
_LEAST_GAP_DB = 15.0
"""Speech is louder than its pauses by 20 dB and more; with music 6 dB below it, by 11 to 14."""
_ENOUGH_S = 60.0
_FULL_SCALE = 0.999
_FLAT_SAMPLES = 3
_MOST_FLAT_PEAKS = 5


class _Recorded(NamedTuple):
    seconds: float
    rate_hz: int
    is_clipped: bool
    gap_db: float


def examine_recordings(data: Path, voice: TransformerTtsSettings) -> list[Finding]:
    """Return what there is to tell about the recordings at ``data`` for a voice."""
    try:
        found = gather(recordings.load(data), clip_settings=voice.clips, text_settings=voice.text)
        recorded = [_looked_at(clip.sound.read()) for clip in found.clips]
    except (DatasetError, OSError) as error:
        return [Finding("recordings", False, str(error))]
    people = sorted({clip.speaker for clip in found.clips})
    return [
        _amount(recorded),
        _people(people),
        _rate(recorded, voice.mel.sample_rate_hz),
        _clipping(recorded),
        _pauses(recorded),
    ]


def _looked_at(sound: Sound) -> _Recorded:
    samples = sound.channels.mean(1)
    return _Recorded(
        len(samples) / sound.sample_rate_hz,
        sound.sample_rate_hz,
        _is_clipped(sound.channels),
        _gap_db(samples, sound.sample_rate_hz),
    )


def _is_clipped(channels: NDArray[np.float32]) -> bool:
    """Return whether peaks are cut flat at full scale, in any channel."""
    at_top = np.abs(channels) >= _FULL_SCALE
    flat = np.lib.stride_tricks.sliding_window_view(at_top, min(_FLAT_SAMPLES, len(at_top)), axis=0)
    return bool(flat.all(-1).sum() > _MOST_FLAT_PEAKS)


def _gap_db(samples: NDArray[np.float32], rate_hz: int) -> float:
    """Return by how much the loud frames are louder than the quiet ones: 9th over 1st tenth."""
    frame = max(1, round(_FRAME_S * rate_hz))
    frames = samples[: len(samples) // frame * frame].reshape(-1, frame).astype(np.float64)
    if not len(frames):
        return 0.0
    levels = np.sqrt(np.square(frames).mean(1)) + 1e-7
    quiet, loud = np.percentile(levels, (10, 90))
    return float(20 * np.log10(loud / quiet))


def _amount(recorded: Sequence[_Recorded]) -> Finding:
    train, *held_out = split_in_order(recorded)
    seconds = sum(one.seconds for one in train)
    told = (
        f"{counted(len(recorded), 'recording')}: {len(train)} to train on, {seconds:.0f} s of "
        f"them, {sum(map(len, held_out))} of the newest to score on"
    )
    if seconds < _ENOUGH_S:
        told += f"; a voice of one's own wants about {_ENOUGH_S:.0f} s, record more"
    return Finding("recordings", seconds >= _ENOUGH_S, told)


def _people(people: Sequence[str]) -> Finding:
    if len(people) == 1:
        return Finding("speaker", True, "one folder, taken for one person")
    named = ", ".join(people[:5])
    return Finding(
        "speaker",
        False,
        f"{len(people)} folders are {len(people)} people ({named}), and a device has one voice: "
        "give the folder of one",
    )


def _rate(recorded: Sequence[_Recorded], wanted_hz: int) -> Finding:
    lowest = min(one.rate_hz for one in recorded)
    if lowest >= wanted_hz:
        return Finding(
            "sampling rate", True, f"{lowest:,} Hz and more, the voice has {wanted_hz:,}"
        )
    count = sum(one.rate_hz < wanted_hz for one in recorded)
    return Finding(
        "sampling rate",
        False,
        f"{count} of {len(recorded)} have less than the voice's {wanted_hz:,} Hz: at {lowest:,} "
        f"nothing above {lowest // 2:,} Hz is there to learn; record at {wanted_hz:,} or more",
    )


def _clipping(recorded: Sequence[_Recorded]) -> Finding:
    count = sum(one.is_clipped for one in recorded)
    if not count:
        return Finding("clipping", True, "no peaks are cut off")
    return Finding(
        "clipping",
        False,
        f"peaks of {count} of {len(recorded)} are cut off at full scale: record them again, "
        "quieter or further away",
    )


def _pauses(recorded: Sequence[_Recorded]) -> Finding:
    gap = float(np.median([one.gap_db for one in recorded]))
    if gap >= _LEAST_GAP_DB:
        return Finding("pauses", True, f"{gap:.0f} dB below the speech")
    return Finding(
        "pauses",
        False,
        f"only {gap:.0f} dB below the speech, {_LEAST_GAP_DB:.0f} are usual: music, noise or an "
        "echo is learnt with the voice; record where it is quiet",
    )
