"""Run ``sotto-export``: make a bundle from a release, check one, and ask one for words.

What is typed goes nowhere but into the model, and comes out only as suggestions.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from privacy.certificates import CertificateError
from privacy.installation import InstallationError, check_installation
from privacy.keys import KeyFileError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    arguments = _parser().parse_args(argv)
    try:
        check_installation()
        report = _run(arguments)
    except ImportError as error:
        print(f"sotto-export: {error.name} is missing; install sotto[export]", file=sys.stderr)
        return 1
    except (ValueError, OSError, KeyFileError, CertificateError, InstallationError) as error:
        print(f"sotto-export: {error}", file=sys.stderr)
        return 1
    _print(report, as_json=arguments.json)
    return 0


def _run(arguments: argparse.Namespace) -> Mapping[str, object]:
    from export import commands

    match arguments.command:
        case "keyboard":
            return commands.export_keyboard_bundle(
                arguments.source,
                arguments.out,
                which=arguments.round,
                languages=arguments.language,
                authority=arguments.authority,
                passphrase_file=arguments.passphrase_file,
            )
        case "verify":
            return commands.verify(arguments.bundle, authority=arguments.authority)
        case _:
            # Other users of the machine can read a command line, but not standard input.
            text = sys.stdin.read() if arguments.text == "-" else arguments.text
            return commands.suggest(
                arguments.bundle, text, top=arguments.top, authority=arguments.authority
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sotto-export", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_keyboard(commands.add_parser("keyboard", help="make a keyboard's bundle from a release"))
    _add_verify(commands.add_parser("verify", help="check digests, signature, weights and parity"))
    _add_suggest(commands.add_parser("suggest", help="suggest the next word of a text"))
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument(
            "--authority",
            type=Path,
            metavar="FILE",
            help="the federation's authority.crt: refuse what its coordinator did not sign",
        )
    return parser


def _add_keyboard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="folder of a coordinator, of a simulated run, or of one release",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="BUNDLE",
        help="new folder, or a .zip, which is replaced in one step",
    )
    parser.add_argument(
        "--round", default="latest", help="round number, latest or best (default: %(default)s)"
    )
    parser.add_argument(
        "--language",
        action="append",
        metavar="TAG",
        help="language of the word list, such as en; give it once for each "
        "(default: en for the list shipped with sotto, else none)",
    )
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="owner-only file whose first line opens the coordinator's keys, to sign the bundle",
    )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder or .zip")


def _add_suggest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder or .zip")
    parser.add_argument("text", metavar="TEXT", help="text so far; - reads standard input")
    parser.add_argument(
        "--top",
        type=_at_least_one,
        default=3,
        metavar="WORDS",
        help="most suggestions, in words (default: %(default)s)",
    )


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be >= 1, got {number}")
    return number


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
