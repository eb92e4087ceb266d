"""Do what ``sotto-export speak`` does, and report it as names and values."""

import time

import numpy as np

from export.commands.flags import Speaking
from export.commands.open_bundles import OpenVoice
from export.commands.reports import Report
from export.speaking.sound_file import check_format, encode_sound, format_of
from privacy.foundation.atomic_files import write_atomically


def speak(asked: Speaking, text: str) -> Report:
    """Say a text, in the voice of one person or of nobody in particular, and write the sound.

    Raises:
        ValueError: If bundle, person, text or format is refused.
        OSError: If a file cannot be read or written.
    """
    wanted = format_of(asked.out)
    opened = OpenVoice(asked.bundle, person=asked.person, authority=asked.authority)
    voice = opened.voice
    check_format(wanted, voice.sample_rate_hz)
    started = time.monotonic()
    said = list(voice.speak(text, speed=asked.speed, seed=asked.seed, longest_s=asked.longest_s))
    taken_s = time.monotonic() - started
    sound = np.concatenate([one.sound for one in said])
    write_atomically(asked.out, encode_sound(sound, voice.sample_rate_hz, wanted))
    sounding_s = len(sound) / voice.sample_rate_hz
    return {
        "file": str(asked.out),
        "sentences": len(said),
        "cut_off": sum(not one.has_ended for one in said),
        "seconds": round(sounding_s, 3),
        "seconds_taken": round(taken_s, 3),
        "sound_by": "Griffin-Lim" if opened.manifest.vocoder is None else "the bundle's vocoder",
    }
