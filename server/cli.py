"""Run ``sotto-server``: found a federation, invite devices, coordinate them, look after them."""

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from privacy.accounting.accountant import AccountantsDisagreeError
from privacy.accounting.ledger_chain import LedgerError
from privacy.foundation.command_exit import command, failed
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.memory_pool import keep_freed_memory
from privacy.foundation.whole_number_flags import at_least_one
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError
from privacy.noise.calibrated_settings import TreeNoise
from server.config.federation import ConfigError, preset_names, preset_text, settings_text
from server.devices.clients import UnknownClientError
from server.operating.backup import BackupError, create_backup, restore_backup
from server.operating.commands import Federation
from server.operating.founding import FoundingError, found, write_invites
from server.operating.ledger_report import ledger_as_json, print_ledger
from server.operating.report import print_rounds, print_status, round_as_json
from server.records.folder import ServerFolder, without_noise_secret
from server.records.lock import AlreadyRunningError
from server.records.store import StoreError
from server.services.admin_client import AdminCallError, NotRunningError
from server.services.listeners import ListenError

# A ValueError here is a setting that cannot be used: a word list, a text, a host name.
_FAILURES = (
    AccountantsDisagreeError,
    AdminCallError,
    AlreadyRunningError,
    BackupError,
    CertificateError,
    ConfigError,
    FoundingError,
    InstallationError,
    KeyFileError,
    LedgerError,
    ListenError,
    NotRunningError,
    OSError,
    StoreError,
    UnknownClientError,
    ValueError,
)


@command("sotto-server")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], None] = arguments.command
    try:
        check_installation()
        run(arguments)
    except _FAILURES as error:
        return failed("sotto-server", error)
    return 0


def _init(arguments: argparse.Namespace) -> None:
    preset, config = arguments.preset, arguments.config
    text = preset_text(preset) if config is None else settings_text(config)
    source = f"preset {preset}" if config is None else str(config)
    founded = found(arguments.folder, text, arguments.hostname, source=source)
    print(f"founded a federation in {arguments.folder}")
    print(f"devices reach it at {founded.listen.advertised_host}; settings: federation.toml there")
    print(f"next: sotto-server token {arguments.folder} --count 1")


def _token(arguments: argparse.Namespace) -> None:
    federation = Federation(arguments.folder)
    out = arguments.out or arguments.folder / "invites"
    for path in write_invites(
        federation.folder,
        federation.config,
        out,
        count=arguments.count,
        client=arguments.client,
    ):
        print(path)


def _run(arguments: argparse.Namespace) -> None:
    # Here, because they import torch, which takes a second.
    from server.config.start_lines import promises
    from server.operating.running import Ports, serve

    federation = Federation(arguments.folder)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)

    def on_ready(ports: Ports) -> None:
        print(f"enrolment on port {ports.enrolment}, devices on port {ports.devices}")
        for line in promises(federation.config):
            print(f"privacy: {line}")
        if federation.config.growth_told:
            print(f"growth: {federation.config.growth_told}")
        print(f"personalisation: {federation.config.travel}", flush=True)

    keep_freed_memory()
    asyncio.run(serve(federation.folder, federation.config, on_ready=on_ready))


def _status(arguments: argparse.Namespace) -> None:
    report = Federation(arguments.folder).status()
    if arguments.json:
        print(msgspec.json.encode(report).decode())
    else:
        print_status(report)


def _rounds(arguments: argparse.Namespace) -> None:
    rounds = Federation(arguments.folder).rounds(arguments.first_round)
    if arguments.json:
        print(json.dumps([round_as_json(summary) for summary in rounds]))
    else:
        print_rounds(rounds)


def _ledger(arguments: argparse.Namespace) -> None:
    ledger, spent = Federation(arguments.folder).ledger()
    if arguments.json:
        print(ledger_as_json(ledger, spent))
    else:
        print_ledger(ledger.entries, spent)


def _pause(arguments: argparse.Namespace) -> None:
    Federation(arguments.folder).pause()
    print("paused: the running round goes on, no new one opens")


def _resume(arguments: argparse.Namespace) -> None:
    Federation(arguments.folder).resume()
    print("resumed")


def _drain(arguments: argparse.Namespace) -> None:
    Federation(arguments.folder).drain()
    print("draining: the coordinator stops when the running round has ended")


def _revoke(arguments: argparse.Namespace) -> None:
    Federation(arguments.folder).revoke(arguments.client)
    print(f"revoked {arguments.client}")


def _forget(arguments: argparse.Namespace) -> None:
    count = Federation(arguments.folder).forget(arguments.client)
    print(f"forgot {arguments.client}; {count} updates that waited were deleted")


def _rotate_keys(arguments: argparse.Namespace) -> None:
    Federation(arguments.folder).rotate_keys(arguments.hostname)
    print("rotated the coordinator's keys; devices take them up with their next round")


def _backup(arguments: argparse.Namespace) -> None:
    federation = Federation(arguments.folder)
    manifest = create_backup(
        federation.folder, federation.config.store, arguments.out.absolute(), now=time.time()
    )
    print(f"wrote {arguments.out}: run {manifest.run}, last round {manifest.last_round}")
    print("keep it as safe as the folder: it holds the federation's private keys")
    if isinstance(federation.config.privacy, TreeNoise):
        print(
            "noise.secret is left out: a run that went back would hide other sums with the same "
            "noise, and the difference of two models would show them"
        )
        print(
            "to move the run, drain it, back up and copy noise.secret by hand; after a loss, found "
            "a new run that starts from the newest release (start_from)"
        )


def _restore(arguments: argparse.Namespace) -> None:
    root = ServerFolder(arguments.folder.absolute())
    manifest = restore_backup(arguments.archive, root)
    print(f"restored run {manifest.run} at round {manifest.last_round} into {arguments.folder}")
    print(
        "paused: whoever was revoked, forgotten or invited since the backup is as before it, and "
        "so are rotated keys. Do all of that again, then `sotto-server run`, which goes on with a "
        "round that was open, then `sotto-server resume`"
    )
    print("do not run the folder that was backed up beside this one")
    if isinstance(Federation(arguments.folder).config.privacy, TreeNoise):
        print(f"noise.secret is in no backup: {without_noise_secret(root)}")
        return
    print(
        f"rounds after {manifest.last_round} will be trained again; what they released is not in "
        "the restored ledger: under a privacy guarantee, what they spent comes on top of what it "
        "says"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sotto-server",
        description="Set up a federation, invite devices, run the coordinator and look after it.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[argparse.Namespace], None], description: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=description, description=description, allow_abbrev=False
        )
        command.set_defaults(command=run)
        return command

    _add_founding(add)
    _add_serving(add)
    _add_keeping(add)
    return parser


_Add = Callable[[str, Callable[[argparse.Namespace], None], str], argparse.ArgumentParser]


def _add_founding(add: _Add) -> None:
    init = add("init", _init, "found a federation in a new folder")
    _add_folder(init)
    source = init.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", choices=preset_names(), help="settings that ship with sotto")
    source.add_argument("--config", type=Path, metavar="FILE", help="settings of your own, TOML")
    _add_hostnames(init)
    token = add("token", _token, "write invite files; each enrols one device within 24 hours")
    _add_folder(token)
    whom = token.add_mutually_exclusive_group()
    whom.add_argument("--count", type=at_least_one, default=1, help="new devices (default: 1)")
    whom.add_argument("--client", metavar="NAME", help="a known device that enrols again")
    token.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the invites (default: DIR/invites)"
    )


def _add_serving(add: _Add) -> None:
    _add_folder(add("run", _run, "coordinate the federation until drained or stopped"))
    status = add("status", _status, "say where the run stands")
    _add_folder(status)
    _add_json(status)
    rounds = add("rounds", _rounds, "list released rounds; durations in seconds")
    _add_folder(rounds)
    _add_json(rounds)
    rounds.add_argument(
        "--first-round", type=at_least_one, default=1, metavar="N", help="begin here (default: 1)"
    )
    ledger = add("ledger", _ledger, "list what was released, and the privacy it spent")
    _add_folder(ledger)
    _add_json(ledger)
    _add_folder(add("pause", _pause, "open no new round until resumed, also after a restart"))
    _add_folder(add("resume", _resume, "open rounds again, also one that was given up"))
    _add_folder(add("drain", _drain, "finish the running round, then stop the coordinator"))


def _add_keeping(add: _Add) -> None:
    for name, run, description in (
        ("revoke", _revoke, "withdraw a device's certificates and unused invites at once"),
        ("forget", _forget, "revoke a device and delete what is known of it"),
    ):
        command = add(name, run, description)
        _add_folder(command)
        command.add_argument(
            "client", metavar="NAME", help="device, enrolled or invited, as device-0001"
        )
    rotate = add("rotate-keys", _rotate_keys, "replace the keys of a stopped coordinator")
    _add_folder(rotate)
    _add_hostnames(rotate)
    backup = add("backup", _backup, "write store, keys and releases into one archive")
    _add_folder(backup)
    backup.add_argument("--out", type=Path, required=True, metavar="FILE", help="archive to write")
    restore = add("restore", _restore, "unpack an archive into a new folder")
    restore.add_argument("archive", type=Path, metavar="FILE", help="archive made by backup")
    _add_folder(restore)


def _add_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, metavar="DIR", help="the federation's folder")


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _add_hostnames(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--hostname",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address under which devices reach this machine; may be repeated, and the "
        "first stands in invites",
    )


if __name__ == "__main__":
    sys.exit(main())
