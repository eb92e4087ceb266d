"""Bring a new voice into service, or the one before it back.

A voice is judged by a figure of which less is better, such as the distance of its spectrograms from
real ones, as both bundles name it: what a server would have to measure that on is recordings, which
it does not have.
"""

from collections.abc import Sequence
from pathlib import Path

from export.personal_file import PersonalFile, kind_of, load_personal_file
from export.serve.copies import copied, keep, remove_all_but
from export.serve.folder import ServingError, ServingFolder
from export.serve.promotion import GateError, add_people, replace_everybody
from export.serve.settings import read_settings
from export.serve.tokens import checked_client
from export.serve.versions import read_versions, version_name, write_versions
from export.serve.voice_shelf import ServedVoice, load_voice, voice_of
from export.speech_bundle import load_speech_bundle
from export.speech_manifest import SpeechManifest
from privacy.atomic import write_atomically

METRIC = "perplexity"
"""What voices are compared by, unless another figure is named; of a voice it is e to the mel L1."""

_PER_CENT = 100


def promote_voice(
    folder: ServingFolder,
    bundle: Path,
    *,
    metric: str = METRIC,
    people: Path | None = None,
    largest_loss_percent: float,
) -> dict[str, object]:
    """Serve a voice from now on, if it passes the gate.

    Args:
        folder: The serving folder.
        bundle: Speech bundle folder or ``.zip``; copied.
        metric: The figure that the gate compares, which both bundles name; less is better.
        people: Folder of personal files, ``.zip``, for a voice of which a part is each person's
            own; copied.
        largest_loss_percent: How much worse the figure may be, in per cent of the present one.

    Returns:
        The version, and what the gate found.

    Raises:
        GateError: If the figure is worse, or cannot be compared.
        ValueError: If the bundle is corrupt, unsigned where that is not accepted, or cannot run.
        OSError: If the disk refuses; what was served goes on.
    """
    folder.check()
    settings, voices = read_settings(folder.settings), folder.voices
    with (
        folder.changing(),
        copied(voices, bundle, people, check=load_speech_bundle) as incoming,
    ):
        new = load_voice(folder, settings, incoming.name)
        _check_people(folder, new)
        version = version_name(new.manifest)
        versions = read_versions(voices)
        if version == versions.present:
            raise ServingError(f"voice {version} is served already")
        old = None
        if versions.present is not None:
            old = load_speech_bundle(voices.bundles / versions.present).manifest
        reason = judge_voice(metric, old, new.manifest, largest_loss_percent)
        keep(voices, incoming, version)
        changed = versions.changed("promote", version, reason)
        write_versions(voices, changed)
        remove_all_but(voices, {version, changed.before})
    return {"version": version, "before": changed.before, "gate": reason}


def judge_voice(
    metric: str, old: SpeechManifest | None, new: SpeechManifest, largest_loss_percent: float
) -> str:
    """Return in words why a voice is good enough beside the present one.

    Raises:
        GateError: If it is not, or a bundle does not name the figure.
    """
    figure = _figure(metric, new)
    if old is None:
        return f"{metric} {figure:.4f}; no voice was served before"
    before = _figure(metric, old)
    found = f"{metric} {figure:.4f}, the present voice has {before:.4f}"
    # Written so that NaN is refused too.
    if not (figure - before) * _PER_CENT <= largest_loss_percent * abs(before):
        raise GateError(
            f"{found}: it may be at most {largest_loss_percent:g} % worse; "
            "the present voice goes on"
        )
    return found


def add_files(folder: ServingFolder, files: Sequence[Path]) -> dict[str, object]:
    """Add or replace people's files, on the present voice if made for it, else on the keyboard.

    One file of everybody's embeddings may stand alone; the keyboard's people are then made of it.

    Raises:
        ServingError: If nothing is served, or the present version has one model for everyone.
        BundleError: If a file is corrupt, unsigned where it must be signed, or of neither.
        OSError: If the disk refuses.
    """
    folder.check()
    if len(files) == 1 and kind_of(files[0]) == "people":
        return replace_everybody(folder, files[0])
    authority = folder.authority_certificate()
    owned = [(file, load_personal_file(file, authority=authority)) for file in files]
    present = read_versions(folder.voices).present
    if present is None:
        return add_people(folder, files)
    served = load_voice(folder, read_settings(folder.settings), present)
    for_voice = [(file, own) for file, own in owned if _is_made_for(own, served.manifest)]
    others = [file for file in files if file not in [taken for taken, _ in for_voice]]
    report = add_people(folder, others) if others else {}
    if for_voice:
        report |= {"voice": present, "voices_of": _add_voices(folder, served, for_voice)}
    return report


def roll_back_voice(folder: ServingFolder, *, reason: str) -> dict[str, object]:
    """Serve the voice before again; the present one is then the one before.

    Raises:
        ServingError: If there is none.
        ValueError: If its bundle is no longer what it was.
        OSError: If the disk refuses.
    """
    folder.check()
    settings, voices = read_settings(folder.settings), folder.voices
    with folder.changing():
        versions = read_versions(voices)
        if versions.before is None:
            raise ServingError("there is no voice before the present one to go back to")
        load_voice(folder, settings, versions.before)
        write_versions(voices, versions.changed("rollback", versions.before, reason))
    return {"version": versions.before, "before": versions.present}


def _add_voices(
    folder: ServingFolder, served: ServedVoice, files: Sequence[tuple[Path, PersonalFile]]
) -> list[str]:
    """Put files beside the present voice, and return whose they are."""
    names = []
    with folder.changing():
        people = folder.voices.people(served.version)
        people.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file, own in files:
            own.on(served.voice, served.manifest)
            name = checked_client(own.manifest.client)
            write_atomically(folder.voices.person(served.version, name), file.read_bytes())
            names.append(name)
    return names


def _is_made_for(own: PersonalFile, voice: SpeechManifest) -> bool:
    schema = voice.personal_schema.sha256.hex()
    return (own.manifest.run, own.manifest.schema_sha256) == (voice.run, schema)


def _figure(metric: str, manifest: SpeechManifest) -> float:
    figure = manifest.metrics.get(metric)
    if not isinstance(figure, int | float):
        raise GateError(
            f"metric {metric!r} must be a figure of round {manifest.round_number}'s bundle, which "
            f"has {sorted(manifest.metrics)}; give one of these with --metric, of which less is "
            "better"
        )
    return float(figure)


def _check_people(folder: ServingFolder, new: ServedVoice) -> None:
    """Check that every personal file that came along can be used."""
    for path in sorted(folder.voices.people(new.version).glob("*")):
        if path.suffix != ".zip" or not path.is_file():
            raise ServingError(f"{path.name} must be CLIENT.zip, a personal file")
        voice_of(folder, new, checked_client(path.stem))
