"""Run ``sotto-serve``: serve people's models over HTTP and gRPC, and choose which version.

``sotto-serve DIR`` is short for ``sotto-serve run DIR``.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from privacy.foundation.command_exit import command, failed
from privacy.foundation.installation import InstallationError, check_installation

if TYPE_CHECKING:
    from export.serve.folder.folder import ServingFolder

_HELPS = {
    "run": "serve DIR until SIGTERM; `sotto-serve DIR` does the same",
    "init": "make a serving folder",
    "promote": "serve a bundle from now on, if it is no worse",
    "person": "add or replace people's files on the present version",
    "rollback": "serve the version before again",
    "status": "show what is served, and what was",
    "token": "make a bearer token for each client; it ends the one the client had",
    "revoke": "end clients' tokens",
}
"""Handlers of the commands that work on a serving folder."""
_WITHOUT_FOLDER = ("page", "fetch")


@command("sotto-serve")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0] not in (*_HELPS, *_WITHOUT_FOLDER, "-h", "--help"):
        given.insert(0, "run")
    arguments = _parser().parse_args(given)
    try:
        check_installation()
        _print(_run(arguments), as_json=arguments.json)
    except ImportError as error:
        print(f"sotto-serve: {error.name} is missing; install sotto[serve]", file=sys.stderr)
        return 1
    except (ValueError, OSError, InstallationError) as error:
        return failed("sotto-serve", error)
    return 0


def _run(arguments: argparse.Namespace) -> Mapping[str, object]:
    from export.serve import commands
    from export.serve.folder.folder import ServingFolder

    if arguments.command in _WITHOUT_FOLDER:
        return _prepare_page(arguments)
    folder = ServingFolder(arguments.folder)
    match arguments.command:
        case "promote" | "person" | "rollback":
            return _change(folder, arguments)
        case "init":
            return commands.init(folder, authority=arguments.authority)
        case "token" | "revoke":
            change = commands.token if arguments.command == "token" else commands.revoke
            return change(folder, arguments.client)
        case "status":
            return commands.status(folder)
        case _:
            return _serve(folder)


def _prepare_page(arguments: argparse.Namespace) -> Mapping[str, object]:
    """Do what needs no serving folder."""
    from export.page.device_site import write_site
    from export.page.onnxruntime_web import fetch

    if arguments.command == "fetch":
        return {"fetched": str(fetch())}
    return write_site(
        arguments.bundle,
        arguments.out,
        person=arguments.person,
        authority=arguments.authority,
    )


def _change(folder: "ServingFolder", arguments: argparse.Namespace) -> Mapping[str, object]:
    """Change what is served."""
    from export.serve.promotion.keyboard import promote, roll_back
    from export.serve.promotion.people import add_files

    match arguments.command:
        case "promote":
            return promote(
                folder,
                arguments.bundle,
                metric=arguments.metric,
                held_out=arguments.held_out,
                people=arguments.people,
                largest_loss=arguments.largest_loss,
            )
        case "person":
            return add_files(folder, arguments.file)
        case _:
            return roll_back(folder, voice=arguments.voice, reason=arguments.reason)


def _serve(folder: "ServingFolder") -> Mapping[str, object]:
    from export.serve.running import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    asyncio.run(serve(folder, announce=lambda url: print(f"serving on {url}", flush=True)))
    return {}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sotto-serve",
        description="Serve people's keyboards and voices over HTTP and gRPC, and choose which "
        "version they get.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, explanation in _HELPS.items():
        command = commands.add_parser(name, help=explanation)
        command.add_argument("folder", type=Path, metavar="DIR", help="serving folder")
        command.add_argument("--json", action="store_true", help="print one JSON object")
    _add_page(commands)
    _add_init(commands.choices["init"])
    _add_promote(commands.choices["promote"])
    commands.choices["rollback"].add_argument(
        "--reason", default="asked for", help="kept in the history (default: %(default)s)"
    )
    commands.choices["rollback"].add_argument(
        "--voice", action="store_true", help="the voice before, not the keyboard"
    )
    commands.choices["person"].add_argument(
        "file",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="personal file, .zip, as `sotto-export personal` makes it; or the one file of "
        "`sotto-export people`, which replaces the previous one",
    )
    for name in ("token", "revoke"):
        commands.choices[name].add_argument(
            "client", nargs="+", metavar="CLIENT", help="name of a client"
        )
    return parser


# Any: argparse gives what adds commands no public type.
def _add_page(commands: Any) -> None:
    page = commands.add_parser("page", help="write the page and one keyboard as plain files")
    page.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder or .zip")
    page.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="new folder for the files"
    )
    page.add_argument(
        "--person",
        type=Path,
        metavar="FILE",
        help="whose keyboard it is: a file made by `sotto-export personal`",
    )
    page.add_argument(
        "--authority",
        type=Path,
        metavar="FILE",
        help="the federation's authority.crt: refuse what its coordinator did not sign",
    )
    fetch = commands.add_parser("fetch", help="fetch the page's onnxruntime with npm, pinned")
    for added in (page, fetch):
        added.add_argument("--json", action="store_true", help="print one JSON object")


def _add_init(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument(
        "--authority",
        type=Path,
        metavar="FILE",
        help="the federation's authority.crt: serve only what its coordinator signed",
    )
    choice.add_argument(
        "--accept-unsigned", action="store_true", help="serve any bundle, whoever made it"
    )


def _add_promote(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle folder or .zip; copied")
    parser.add_argument(
        "--held-out",
        type=Path,
        metavar="FILE",
        help="UTF-8 text that no device trained on, to measure both versions on "
        "(default: believe the figures in the bundles)",
    )
    parser.add_argument(
        "--people",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="where a part of the bundle is each person's own: a folder of personal files named "
        "CLIENT.zip, or the file of `sotto-export people`; may be given twice, once for each "
        "(default for each: the present version's, where they fit)",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="figure to compare, which must say how good a model is (default: top3_recall for a "
        "keyboard, perplexity for a voice)",
    )
    parser.add_argument(
        "--largest-loss",
        type=float,
        default=0.5,
        metavar="LOSS",
        help="how much worse it may be: in percentage points for a share such as recall, in per "
        "cent of the present value for any other figure such as perplexity (default: %(default)s)",
    )


def _print(report: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    for name, value in report.items():
        if name == "tokens" and isinstance(value, Mapping):
            for client, token in value.items():
                print(f"{client}\t{token}")
        elif name == "history" and isinstance(value, Sequence):
            for change in value:
                print("  {at} {action} {version}: {reason}".format(**change))
        else:
            print(f"{name}: {value}")
