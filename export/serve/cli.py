"""Run ``sotto-serve``: serve people's models over HTTP and gRPC, and choose which version.

``sotto-serve DIR`` is short for ``sotto-serve run DIR``.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence

import msgspec

from export.serve.flags import (
    Additions,
    Clients,
    Fetching,
    InFolder,
    Page,
    Promotion,
    Rollback,
    Starting,
)
from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import command_line, read_arguments
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.toml_schema import NoSettings, print_schema, toml_schema

Report = Mapping[str, object]


# What every program takes before a subcommand.
_OF_ALL = {"-h", "--help", "--version", "--print-completion"}


@command("sotto-serve")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    handlers = (
        *(_run, _init, _promote, _person, _rollback, _status, _token, _revoke),
        *(_page, _fetch, _schema),
    )
    given = list(sys.argv[1:] if argv is None else argv)
    names = {handler.__name__.strip("_") for handler in handlers}
    if given and given[0] not in names | _OF_ALL:
        given.insert(0, "run")
    parser = command_line(
        "sotto-serve",
        "Serve people's keyboards and voices over HTTP and gRPC, and choose which version they "
        "get.",
        handlers,
    )
    arguments = read_arguments(parser, given)
    try:
        check_installation()
        report = arguments.handler(arguments.settings)
        _print(report, as_json=getattr(arguments.settings, "json", False))
    except ImportError as error:
        print(f"sotto-serve: {error.name} is missing; install sotto[serve]", file=sys.stderr)
        return 1
    except (ValueError, OSError, InstallationError) as error:
        return failed("sotto-serve", error)
    return 0


def _run(asked: InFolder) -> Report:
    """Serve DIR until SIGTERM; `sotto-serve DIR` does the same."""
    from export.serve.running import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Its warnings are one for each malformed request, and any stranger can send those.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    asyncio.run(serve(asked.serving, announce=lambda url: print(f"serving on {url}", flush=True)))
    return {}


def _init(asked: Starting) -> Report:
    """Make a serving folder."""
    from export.serve.commands import init

    return init(asked.serving, authority=asked.authority)


def _promote(asked: Promotion) -> Report:
    """Serve a bundle from now on, if it is no worse."""
    from export.serve.promotion.keyboard import promote

    return promote(
        asked.serving,
        asked.bundle,
        metric=asked.metric,
        held_out=asked.held_out,
        people=asked.people,
        largest_loss=asked.largest_loss,
    )


def _person(asked: Additions) -> Report:
    """Add or replace people's files on the present version."""
    from export.serve.promotion.people import add_files

    return add_files(asked.serving, asked.file)


def _rollback(asked: Rollback) -> Report:
    """Serve the version before again."""
    from export.serve.promotion.keyboard import roll_back

    return roll_back(asked.serving, voice=asked.voice, reason=asked.reason)


def _status(asked: InFolder) -> Report:
    """Show what is served, and what was."""
    from export.serve.commands import status

    return status(asked.serving)


def _token(asked: Clients) -> Report:
    """Make a bearer token for each client; it ends the one the client had."""
    from export.serve.commands import token

    return token(asked.serving, asked.client)


def _revoke(asked: Clients) -> Report:
    """End clients' tokens."""
    from export.serve.commands import revoke

    return revoke(asked.serving, asked.client)


def _page(asked: Page) -> Report:
    """Write the page and one keyboard as plain files."""
    from export.page.device_site import write_site

    return write_site(asked.bundle, asked.out, person=asked.person, authority=asked.authority)


def _fetch(_: Fetching) -> Report:
    """Fetch the page's onnxruntime with npm, pinned."""
    from export.page.onnxruntime_web import fetch

    return {"fetched": str(fetch())}


def _schema(_: NoSettings) -> Report:
    """Print the JSON schema of serve.toml, for editors that complete and check it."""
    from export.serve.folder.settings import ServeSettings

    print_schema(toml_schema(ServeSettings, "serve.toml"))
    return {}


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
