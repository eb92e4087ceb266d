"""Settings of each ``sotto-export`` subcommand, whose flags ``privacy.foundation.flags`` makes."""

from pathlib import Path
from typing import Annotated, Literal

from privacy.foundation.flags import Flag, Printed
from privacy.foundation.whole_number_flags import at_least_one

_File = Annotated[Path | None, Flag("FILE")]


class Trusting(Printed, frozen=True, kw_only=True):
    """A command that may check who signed.

    Attributes:
        json: Print one JSON object.
        authority: The federation's authority.crt: refuse what its coordinator did not sign.
    """

    authority: _File = None


class Making(Trusting, frozen=True, kw_only=True):
    """A bundle or a personal file to make.

    Attributes:
        out: New folder, or a .zip, which is replaced in one step.
        passphrase_file: Owner-only file whose first line opens the coordinator's keys, to sign what
            is made.
    """

    out: Annotated[Path, Flag("FILE")]
    passphrase_file: _File = None


class FromRelease(Making, frozen=True, kw_only=True):
    """A release to export.

    Attributes:
        source: Folder of a coordinator, of a simulated run, or of one release.
        round: Round number, latest or best.
    """

    source: Annotated[Path, Flag("SOURCE", positional=True)]
    round: str = "latest"


class Graph(FromRelease, frozen=True, kw_only=True):
    """A release to export as a bundle.

    Attributes:
        precision: How weights are kept and multiplied: 4 or 1 bytes each.
    """

    precision: Literal["float32", "int8"] = "float32"


class PluginGraph(Trusting, frozen=True, kw_only=True):
    """A plugin's model to export.

    Attributes:
        source: Folder of a coordinator, of a simulated run, or of one release.
        out: The file, such as model.onnx; replaced in one step.
        plugin: Package with its version to import, such as sotto-spam-filter==1.0.0; once for each
            that the release's plan names.
        round: Round number, latest or best.
    """

    source: Annotated[Path, Flag("SOURCE", positional=True)]
    out: Annotated[Path, Flag("FILE")]
    plugin: Annotated[list[str], Flag("PACKAGE")]
    round: str = "latest"


class Keyboard(Graph, frozen=True, kw_only=True):
    """A keyboard to export.

    Attributes:
        language: Language of the word list, such as en; give it once for each (default: en for the
            list shipped with sotto, else none).
    """

    language: Annotated[list[str] | None, Flag("TAG")] = None


class Speech(Graph, frozen=True, kw_only=True):
    """A voice to export.

    Attributes:
        vocoder: Folder of a coordinator, of a simulated run, or of one release, of task vocoder:
            makes the sound, with the same [model.mel] as the voice's (default: Griffin-Lim does).
    """

    vocoder: Annotated[Path | None, Flag("SOURCE")] = None


class Personal(FromRelease, frozen=True, kw_only=True):
    """A person to export, and what their file is made of.

    Attributes:
        source: Folder of a coordinator, of a simulated run, or of one release; or, with
            --published, everyone's bundle.
        client: The client's name, given at enrolment (default: whoever --published it).
        at_rest: How the numbers are kept in the file: 4, 2 or 1 bytes each.
        whole: Write a bundle with the client's whole model instead.
        published: What the client's device wrote with `sotto-client publish`, where the run's
            method keeps a part of the model there.
        generated: On a device whose method has parts of both sides (fedtp-fedper): what the
            coordinator made with --generated-only, from the bundle's round.
        generated_only: Write only what the coordinator makes of the client's model, for its device
            to complete.
    """

    client: Annotated[str | None, Flag("ID")] = None
    at_rest: Literal["float32", "float16", "int8"] = "float32"
    whole: bool = False
    published: _File = None
    generated: _File = None
    generated_only: bool = False


class OfBundle(Trusting, frozen=True, kw_only=True):
    """A bundle to read.

    Attributes:
        bundle: Folder or .zip of a bundle or personal file.
    """

    bundle: Annotated[Path, Flag("BUNDLE", positional=True)]


class Rounding(Making, frozen=True, kw_only=True):
    """A bundle to round.

    Attributes:
        bundle: Folder or .zip of a bundle or personal file.
        sign_as: Folder of the coordinator that signs the new bundle (default: nobody signs).
    """

    bundle: Annotated[Path, Flag("BUNDLE", positional=True)]
    sign_as: Annotated[Path | None, Flag("DIR")] = None


class Asking(OfBundle, frozen=True, kw_only=True):
    """A keyboard to ask.

    Attributes:
        bundle: Bundle folder or .zip.
        text: Text so far; - reads standard input.
        top: Most suggestions, in words.
        person: Whose keyboard it is: a file made by `sotto-export personal`.
        offensive: Suggest words of the shipped blocklists, too.
    """

    text: Annotated[str, Flag("TEXT", positional=True)]
    top: Annotated[int, Flag("WORDS", parse=at_least_one)] = 3
    person: _File = None
    offensive: bool = False


class Speaking(OfBundle, frozen=True, kw_only=True):
    """A text to say.

    Attributes:
        bundle: Bundle folder or .zip.
        text: Text in English; - reads standard input.
        out: Sound file to write or replace: .wav, .flac, .mp3 or .ogg (Opus).
        speed: 0.25 to 4 times as fast as the voice learnt to speak, at the same pitch.
        longest_s: Cut off a sentence that has not ended after SECONDS at speed 1 (default: 2, and a
            quarter of one for each character).
        seed: Equal seeds give equal sound (default: drawn).
        person: Whose voice it is: a file made by `sotto-export personal` (default: nobody in
            particular).
    """

    text: Annotated[str, Flag("TEXT", positional=True)]
    out: Annotated[Path, Flag("FILE")]
    speed: Annotated[float, Flag("FACTOR")] = 1.0
    longest_s: Annotated[float | None, Flag("SECONDS")] = None
    seed: Annotated[int | None, Flag("NUMBER")] = None
    person: _File = None
