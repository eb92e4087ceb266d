"""Run ``sotto-export``: make bundles and personal files from a release, check and try them.

Typed text goes nowhere but into the model, and comes out only as suggestions.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from privacy.foundation.command_exit import command, failed
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.whole_number_flags import at_least_one
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError


@command("sotto-export")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    arguments = _parser().parse_args(argv)
    try:
        check_installation()
        _print(_run(arguments), as_json=arguments.json)
    except ImportError as error:
        print(f"sotto-export: {error.name} is missing; install sotto[export]", file=sys.stderr)
        return 1
    except (ValueError, OSError, KeyFileError, CertificateError, InstallationError) as error:
        return failed("sotto-export", error)
    return 0


def _run(arguments: argparse.Namespace) -> Mapping[str, object]:
    from export.commands import bundles as commands
    from export.commands import speech as speech_commands

    match arguments.command:
        case "verify":
            return commands.verify(arguments.bundle, authority=arguments.authority)
        case "inspect":
            return commands.inspect(arguments.bundle, authority=arguments.authority)
        case "suggest":
            # Other users of the machine can read a command line, but not standard input.
            text = sys.stdin.read() if arguments.text == "-" else arguments.text
            return commands.suggest(
                arguments.bundle,
                text,
                top=arguments.top,
                authority=arguments.authority,
                person=arguments.person,
            )
        case "speak":
            text = sys.stdin.read() if arguments.text == "-" else arguments.text
            return speech_commands.speak(
                arguments.bundle,
                text,
                arguments.out,
                speed=arguments.speed,
                seed=arguments.seed,
                longest_s=arguments.longest_s,
                person=arguments.person,
                authority=arguments.authority,
            )
        case _:
            return _make(arguments)


def _make(arguments: argparse.Namespace) -> Mapping[str, object]:
    """Do what writes a file."""
    from export.commands import bundles as commands
    from export.commands import people as personal_commands

    keys = {"authority": arguments.authority, "passphrase_file": arguments.passphrase_file}
    match arguments.command:
        case "keyboard" | "image" | "speech":
            return commands.export_release(
                arguments.source,
                arguments.out,
                arguments.command,
                which=arguments.round,
                precision=arguments.precision,
                languages=getattr(arguments, "language", None),
                vocoder=getattr(arguments, "vocoder", None),
                **keys,
            )
        case "people":
            return commands.export_people_file(
                arguments.source, arguments.out, which=arguments.round, **keys
            )
        case "personal":
            options = personal_commands.PersonalOptions(
                client=arguments.client,
                whole=arguments.whole,
                published=arguments.published,
                generated=arguments.generated,
                generated_only=arguments.generated_only,
                resting=arguments.at_rest,
                which=arguments.round,
                **keys,
            )
            return personal_commands.export_personal(arguments.source, arguments.out, options)
        case _:
            return commands.quantise(
                arguments.bundle, arguments.out, sign_as=arguments.sign_as, **keys
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sotto-export",
        description="Make bundles and personal files from a release, check them and try them out.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_keyboard(commands.add_parser("keyboard", help="make a keyboard's bundle from a release"))
    _add_graph(commands.add_parser("image", help="make a classifier's bundle from a release"))
    _add_speech(commands.add_parser("speech", help="make a voice's bundle from a release"))
    _add_personal(commands.add_parser("personal", help="make the file of one client's own part"))
    _add_source(
        commands.add_parser(
            "people",
            help="make one file of everybody's embeddings, from which a server makes each person's "
            "part when it is needed",
        )
    )
    _add_quantise(commands.add_parser("quantise", help="round a bundle's weights to 8 bits"))
    _add_bundle(commands.add_parser("verify", help="check digests, signature, weights and parity"))
    _add_bundle(commands.add_parser("inspect", help="say what a bundle or a personal file is"))
    _add_suggest(commands.add_parser("suggest", help="suggest the next word of a text"))
    _add_speak(commands.add_parser("speak", help="say a text with a voice's bundle"))
    for one in commands.choices.values():
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.add_argument(
            "--authority",
            type=Path,
            metavar="FILE",
            help="the federation's authority.crt: refuse what its coordinator did not sign",
        )
    return parser


def _add_keyboard(parser: argparse.ArgumentParser) -> None:
    _add_graph(parser)
    parser.add_argument(
        "--language",
        action="append",
        metavar="TAG",
        help="language of the word list, such as en; give it once for each "
        "(default: en for the list shipped with sotto, else none)",
    )


def _add_graph(parser: argparse.ArgumentParser) -> None:
    _add_source(parser)
    parser.add_argument(
        "--precision",
        choices=("float32", "int8"),
        default="float32",
        help="how weights are kept and multiplied: 4 or 1 bytes each (default: %(default)s)",
    )


def _add_speech(parser: argparse.ArgumentParser) -> None:
    _add_graph(parser)
    parser.add_argument(
        "--vocoder",
        type=Path,
        metavar="SOURCE",
        help="folder of a coordinator, of a simulated run, or of one release, of task vocoder: "
        "makes the sound, with the same [model.mel] as the voice's (default: Griffin-Lim does)",
    )


def _add_source(parser: argparse.ArgumentParser, *, more: str = "") -> None:
    parser.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help=f"folder of a coordinator, of a simulated run, or of one release{more}",
    )
    parser.add_argument(
        "--round", default="latest", help="round number, latest or best (default: %(default)s)"
    )
    _add_target(parser)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="new folder, or a .zip, which is replaced in one step",
    )
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="owner-only file whose first line opens the coordinator's keys, to sign what is made",
    )


def _add_quantise(parser: argparse.ArgumentParser) -> None:
    _add_bundle(parser)
    _add_target(parser)
    parser.add_argument(
        "--sign-as",
        type=Path,
        metavar="DIR",
        help="folder of the coordinator that signs the new bundle (default: nobody signs)",
    )


def _add_personal(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make the file of one client's own part. The coordinator makes it from a release. A device "
        "that keeps a part makes it by itself, without torch, from everyone's bundle and from what "
        "`sotto-client publish` wrote, which then need not leave the device."
    )
    _add_source(parser, more="; or, with --published, everyone's bundle")
    parser.add_argument(
        "--client",
        metavar="ID",
        help="the client's name, given at enrolment (default: whoever --published it)",
    )
    parser.add_argument(
        "--at-rest",
        choices=("float32", "float16", "int8"),
        default="float32",
        help="how the numbers are kept in the file: 4, 2 or 1 bytes each (default: %(default)s)",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="write a bundle with the client's whole model instead",
    )
    parser.add_argument(
        "--published",
        type=Path,
        metavar="FILE",
        help="what the client's device wrote with `sotto-client publish`, where the run's method "
        "keeps a part of the model there",
    )
    parser.add_argument(
        "--generated",
        type=Path,
        metavar="FILE",
        help="on a device whose method has parts of both sides (fedtp-fedper): what the "
        "coordinator made with --generated-only, from the bundle's round",
    )
    parser.add_argument(
        "--generated-only",
        action="store_true",
        help="write only what the coordinator makes of the client's model, for its device to "
        "complete",
    )


def _add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle", type=Path, metavar="BUNDLE", help="folder or .zip of a bundle or personal file"
    )


def _add_suggest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder or .zip")
    parser.add_argument("text", metavar="TEXT", help="text so far; - reads standard input")
    parser.add_argument(
        "--top",
        type=at_least_one,
        default=3,
        metavar="WORDS",
        help="most suggestions, in words (default: %(default)s)",
    )
    parser.add_argument(
        "--person",
        type=Path,
        metavar="FILE",
        help="whose keyboard it is: a file made by `sotto-export personal`",
    )


def _add_speak(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder or .zip")
    parser.add_argument("text", metavar="TEXT", help="English text; - reads standard input")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="sound file to write or replace: .wav, .flac, .mp3 or .ogg (Opus)",
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="0.25 to 4 times as fast as the voice learnt to speak, at the same pitch "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--longest-s",
        type=float,
        metavar="SECONDS",
        help="cut off a sentence that has not ended after SECONDS at speed 1 "
        "(default: 2, and a quarter of one for each character)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="NUMBER",
        help="equal seeds give equal sound (default: drawn)",
    )
    parser.add_argument(
        "--person",
        type=Path,
        metavar="FILE",
        help="whose voice it is: a file made by `sotto-export personal` "
        "(default: nobody in particular)",
    )


def _print(report: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    for name, value in report.items():
        if name == "suggestions" and isinstance(value, list):
            for suggestion in value:
                print(f"{suggestion['word']}\t{suggestion['probability']:.4f}")
        elif isinstance(value, Mapping):
            print(f"{name}: {', '.join(f'{key} {entry}' for key, entry in value.items())}")
        else:
            print(f"{name}: {value}")
