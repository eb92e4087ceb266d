"""Put people's files beside what is served: for a keyboard, for a voice, or everybody's at once."""

from collections.abc import Sequence
from pathlib import Path

from export.bundles.speech_manifest import SpeechManifest
from export.people.people_file import PeopleFile, load_people_file
from export.people.personal_file import PersonalFile, kind_of, load_personal_file
from export.serve.folder.copies import INCOMING
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.folder.versions import read_versions
from export.serve.loaded.keyboard_version import ServedModel, load_shared, load_version
from export.serve.loaded.voice_version import ServedVoice, load_voice
from export.serve.promotion.carried import named_in
from export.serve.promotion.changes import put_people
from privacy.foundation.atomic_files import write_atomically


def add_files(folder: ServingFolder, files: Sequence[Path]) -> dict[str, object]:
    """Add or replace people's files, on the present voice if made for it, else on the keyboard.

    One file of everybody's embeddings may stand alone; the keyboard's people are then made of it.
    A server takes them at once.

    Raises:
        ServingError: If nothing is served, or the present version has one model for everyone.
        BundleError: If a file is corrupt, unsigned though signatures are required, or of neither.
    """
    folder.check()
    if len(files) == 1 and kind_of(files[0]) == "people":
        return _replace_everybody(folder, files[0])
    authority = folder.authority_certificate()
    owned = [(file, load_personal_file(file, authority=authority)) for file in files]
    with folder.changing():
        voice = _present_voice(folder)
        is_voices = [voice is not None and _is_made_for(own, voice.manifest) for _, own in owned]
        for_voice = [one for one, is_one in zip(owned, is_voices, strict=True) if is_one]
        others = [one for one, is_one in zip(owned, is_voices, strict=True) if not is_one]
        report: dict[str, object] = {}
        if others:
            served = _present_keyboard(folder)
            names = put_people(folder, served, others, served.graph)
            report |= {"version": served.version, "people": names}
        if voice is not None and for_voice:
            names = put_people(folder.voices, voice, for_voice, voice.voice)
            report |= {"voice": voice.version, "voices_of": names}
    return report


def _replace_everybody(folder: ServingFolder, file: Path) -> dict[str, object]:
    """Make the present keyboard's people of another file of embeddings.

    People who left it are withdrawn from every version in the folder, since the one before answers
    too, and with a file of their own.
    """
    with folder.changing():
        served = _present_keyboard(folder)
        everybody = load_people_file(file, authority=folder.authority_certificate())
        made = everybody.on(served.graph, served.manifest)
        named = {version: named_in(folder.everybody(version)) for version in _versions(folder)}
        withdrawn = set().union(*(names or () for names in named.values())) - everybody.rows.keys()
        folder.people(served.version).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(folder.everybody(served.version), file.read_bytes())
        emptied = [
            version
            for version, names in named.items()
            if version != served.version
            and (names is None or names & withdrawn)
            and not _makes_people_of(folder, version, file, everybody)
        ]
        for version in named:
            for client in withdrawn:
                folder.person(version, client).unlink(missing_ok=True)
    return {
        "version": served.version,
        "people": len(made),
        "withdrawn": sorted(withdrawn),
        "versions_that_make_nobody": emptied,
    }


def _versions(folder: ServingFolder) -> list[str]:
    """Return the versions in the folder that have people, without what is being promoted."""
    return sorted(
        path.name for path in folder.all_people.glob("*") if not path.name.startswith(INCOMING)
    )


def _makes_people_of(
    folder: ServingFolder, version: str, file: Path, everybody: PeopleFile
) -> bool:
    """Put everybody's file beside another version, or take the version's away if it does not fit.

    Its signature covers all it holds, so nobody can be taken out of it alone.
    """
    try:
        served = load_shared(folder, read_settings(folder.settings), version)
        everybody.on(served.graph, served.manifest)
    except (ValueError, OSError):
        folder.everybody(version).unlink()
        return False
    write_atomically(folder.everybody(version), file.read_bytes())
    return True


def _present_keyboard(folder: ServingFolder) -> ServedModel:
    present = read_versions(folder).present
    if present is None:
        raise ServingError("no version is served yet; promote one first")
    return load_version(folder, read_settings(folder.settings), present)


def _present_voice(folder: ServingFolder) -> ServedVoice | None:
    present = read_versions(folder.voices).present
    return None if present is None else load_voice(folder, read_settings(folder.settings), present)


def _is_made_for(own: PersonalFile, voice: SpeechManifest) -> bool:
    schema = voice.personal_schema.sha256.hex()
    return (own.manifest.run, own.manifest.schema_sha256) == (voice.run, schema)
