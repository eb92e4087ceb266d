"""Do what ``sotto-export speak`` does, and report it as names and values."""

import time
from pathlib import Path

import numpy as np

from export.bundles.keyboard_bundle import load_speech_bundle
from export.commands.reports import Report
from export.commands.sources import certificate_in
from export.people.personal_file import load_personal_file
from export.speaking.sound_file import check_format, encode_sound, format_of
from export.speaking.voice import open_voice
from privacy.foundation.atomic_files import write_atomically


def speak(
    source: Path,
    text: str,
    target: Path,
    *,
    speed: float,
    seed: int | None,
    longest_s: float | None,
    person: Path | None,
    authority: Path | None,
) -> Report:
    """Say a text, in the voice of one person or of nobody in particular, and write the sound.

    Args:
        source: Folder or ``.zip`` of the bundle.
        target: File, ``.wav``, ``.flac``, ``.mp3`` or ``.ogg`` (Opus); replaced in one step.
        speed: How much faster than the voice learnt to speak.
        seed: Draws; None for the system's.
        longest_s: Seconds after which a sentence that does not end is cut off.
        person: A file made by ``export_personal``.
        authority: ``authority.crt``: refuse what its coordinator did not sign.

    Raises:
        ValueError: If bundle, person, text or format is refused.
        OSError: If a file cannot be read or written.
    """
    wanted = format_of(target)
    bundle = load_speech_bundle(source, authority=certificate_in(authority))
    voice = open_voice(bundle)
    check_format(wanted, voice.sample_rate_hz)
    if person is None:
        voice = voice.for_nobody()
    else:
        own = load_personal_file(person, authority=certificate_in(authority))
        voice = own.on(voice, bundle.manifest)
    started = time.monotonic()
    said = list(voice.speak(text, speed=speed, seed=seed, longest_s=longest_s))
    taken_s = time.monotonic() - started
    sound = np.concatenate([one.sound for one in said])
    write_atomically(target, encode_sound(sound, voice.sample_rate_hz, wanted))
    sounding_s = len(sound) / voice.sample_rate_hz
    return {
        "file": str(target),
        "sentences": len(said),
        "cut_off": sum(not one.has_ended for one in said),
        "seconds": round(sounding_s, 3),
        "seconds_taken": round(taken_s, 3),
        "sound_by": "Griffin-Lim" if bundle.manifest.vocoder is None else "the bundle's vocoder",
    }
