"""Do what ``sotto-export speak`` does, and report it as names and values."""

import time

import numpy as np

from export.bundles.keyboard_bundle import load_speech_bundle
from export.commands.flags import Speaking
from export.commands.reports import Report
from export.commands.sources import certificate_in
from export.people.personal_file import load_personal_file
from export.speaking.sound_file import check_format, encode_sound, format_of
from export.speaking.voice import open_voice
from privacy.foundation.atomic_files import write_atomically


def speak(asked: Speaking, text: str) -> Report:
    """Say a text, in the voice of one person or of nobody in particular, and write the sound.

    Raises:
        ValueError: If bundle, person, text or format is refused.
        OSError: If a file cannot be read or written.
    """
    wanted, certificate = format_of(asked.out), certificate_in(asked.authority)
    bundle = load_speech_bundle(asked.bundle, authority=certificate)
    voice = open_voice(bundle)
    check_format(wanted, voice.sample_rate_hz)
    if asked.person is None:
        voice = voice.for_nobody()
    else:
        own = load_personal_file(asked.person, authority=certificate)
        voice = own.on(voice, bundle.manifest)
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
        "sound_by": "Griffin-Lim" if bundle.manifest.vocoder is None else "the bundle's vocoder",
    }
