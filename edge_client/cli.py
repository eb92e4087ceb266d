"""Run ``sotto-client``: enrol a device, take part in a federation, and diagnose problems."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.agent.agent import Agent
from edge_client.agent.data_at_hand import check_data_at_hand
from edge_client.agent.device import Device
from edge_client.agent.exit_status import DATA_UNUSABLE, NO_ROUND, SERVED, STATUSES
from edge_client.agent.session import Ended
from edge_client.datasets.text_set import DatasetError
from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.jobs.publishing_job import PublishingError, publish_elsewhere
from edge_client.jobs.training_process import ChildTrainer
from edge_client.owner.floor import (
    FloorError,
    PlanBelowFloorError,
    check_data,
    read_floor,
    write_starting_floor,
)
from edge_client.owner.sensors import system_sensors
from edge_client.owner.settings import (
    ClientSettingsError,
    read_client_settings,
    write_starting_settings,
)
from edge_client.owner.traffic import Traffic
from edge_client.wire.enrolling import enrol_device
from edge_client.wire.refusal import RefusedError, UnreachableError
from privacy.foundation.command_exit import command, failed
from privacy.foundation.installation import InstallationError, check_installation
from privacy.identities.certificates import CertificateError
from privacy.identities.invite import InviteError, read_invite
from privacy.identities.keys import KeyFileError, read_passphrase
from privacy.identities.party import Identity

if TYPE_CHECKING:
    from edge_client.owner.doctor import Finding

_FAILURES = (
    CertificateError,
    ClientSettingsError,
    DeviceFolderError,
    FloorError,
    InstallationError,
    InviteError,
    KeyFileError,
    OSError,
    PlanBelowFloorError,
    PublishingError,
    RefusedError,
    UnreachableError,
)


@command("sotto-client")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    # Everything this command makes belongs to one person.
    os.umask(0o077)
    try:
        check_installation()
        status: int = arguments.run(arguments)
    except DatasetError as error:
        print(f"sotto-client: {error}", file=sys.stderr)
        return DATA_UNUSABLE
    except _FAILURES as error:
        return failed("sotto-client", error)
    except KeyboardInterrupt:
        return 0
    return status


def _enrol(arguments: argparse.Namespace) -> int:
    invite, passphrase = read_invite(arguments.invite), _passphrase(arguments)
    folder = DeviceFolder(arguments.folder)
    enrolment = asyncio.run(enrol_device(folder, invite, now=time.time(), passphrase=passphrase))
    write_starting_floor(folder.floor, accepts_no_guarantee=arguments.accept_no_guarantee)
    write_starting_settings(folder.client_settings)
    print(f"enrolled as {enrolment.client_name} at {enrolment.device_address}")
    print(f"what it accepts: {folder.floor}; when it works: {folder.client_settings}")
    if not arguments.accept_no_guarantee:
        print("it takes part only where a noise mode guarantees privacy (modes in floor.toml)")
    print(f"next: sotto-client run {arguments.folder} --data PATH")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    folder = DeviceFolder(arguments.folder)
    enrolment = folder.enrolment()
    settings = read_client_settings(folder.client_settings)
    if arguments.once or not arguments.data.exists():
        # Told now: the agent may wait for hours until it looks itself.
        check_data_at_hand(arguments.data)
    floor = read_floor(folder.floor)
    check_data(arguments.data, floor)
    passphrase = _passphrase(arguments)
    # Told now: the agent may wait for hours until the device's policy lets it use its keys.
    Identity.load(folder.identity, passphrase)
    device = Device(
        folder=folder,
        client_name=enrolment.client_name,
        data=arguments.data.absolute(),
        compute=arguments.device,
        floor=floor,
        trainer=ChildTrainer(settings.keep_warm_s),
        traffic=Traffic(folder.path / "traffic.json"),
        passphrase=passphrase,
    )
    agent = Agent(
        device,
        address=enrolment.device_address,
        ca_certificate=enrolment.ca_certificate,
        policy=settings.policy,
        sensors=system_sensors(),
    )
    with folder.sole_agent():
        ended = asyncio.run(_until_stopped(agent, once=arguments.once))
    return _told(ended) if arguments.once else 0


def _told(ended: Ended | None) -> int:
    """Say in one line why no round was served, if none was; return the exit status."""
    if ended is None or ended.reason == "finished":
        why = "stopped before a round was served" if ended is None else "the run is over"
        print(f"sotto-client: {why}", file=sys.stderr)
        return NO_ROUND
    if ended.not_served is None:
        return SERVED
    code, reason = ended.not_served.code, ended.not_served.reason
    print(f"sotto-client: the round was not served ({code}): {reason}", file=sys.stderr)
    return ended.not_served.exit_status


def _passphrase(arguments: argparse.Namespace) -> bytes | None:
    path: Path | None = arguments.passphrase_file
    return None if path is None else read_passphrase(path)


async def _until_stopped(agent: Agent, *, once: bool) -> Ended | None:
    """Run the agent; SIGTERM and Ctrl-C end it, and with it its training process.

    Returns:
        How it ended by itself, or None if it was stopped.
    """
    running = asyncio.ensure_future(agent.run(once=once))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None


def _publish(arguments: argparse.Namespace) -> int:
    done = publish_elsewhere(arguments.folder, arguments.out, _passphrase(arguments))
    print(f"{arguments.out}: {done.size_bytes:,} bytes, {len(done.tensors)} tensors, signed")
    print(f"it holds what only this device knew: {', '.join(done.tensors)}")
    print(
        "nothing was sent; anyone who has this file can learn from it what was learnt from your "
        "text"
    )
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from edge_client.owner.doctor import examine

    folder, passphrase = DeviceFolder(arguments.folder), _passphrase(arguments)
    findings = asyncio.run(examine(folder, now=time.time(), passphrase=passphrase))
    if arguments.json:
        print(json.dumps({finding.subject: finding.as_dict() for finding in findings}))
    else:
        _show(findings)
    return 0 if all(finding.good for finding in findings) else 1


def _show(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "what", "found", box=None)
    for finding in findings:
        mark = "[green]ok[/]" if finding.good else "[red]no[/]"
        table.add_row(mark, finding.subject, finding.text)
    Console().print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sotto-client",
        description="Enrol this device, take part in a federation, and diagnose problems.",
    )
    parser.add_argument("--verbose", action="store_true", help="log every step to stderr")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_enrol(commands.add_parser("enrol", help="turn an invite into this device's identity"))
    _add_run(
        commands.add_parser(
            "run",
            help="check in and train until stopped",
            epilog=STATUSES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_publish(
        commands.add_parser(
            "publish",
            help="write this device's own part of the model into a signed file, to hand over",
            description="Write the part of the model that is this person's alone, and never leaves "
            "the device otherwise, into a signed file. Nothing is sent. Anyone who has the file "
            "can make this person's keyboard from it, and can learn from it what was learnt from "
            "this person's text.",
        )
    )
    _add_doctor(commands.add_parser("doctor", help="check everything a device needs"))
    return parser


def _add_enrol(enrol: argparse.ArgumentParser) -> None:
    enrol.add_argument("folder", type=Path, metavar="DIR", help="the device's folder; made here")
    enrol.add_argument(
        "--invite", type=Path, required=True, metavar="FILE", help="file from sotto-server token"
    )
    enrol.add_argument(
        "--accept-no-guarantee",
        action="store_true",
        help="let the starting floor accept noise modes that promise no privacy, too",
    )
    _add_passphrase(enrol, "encrypts the key files")
    enrol.set_defaults(run=_enrol)


def _add_run(run: argparse.ArgumentParser) -> None:
    _add_folder(run)
    run.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="PATH",
        help="this person's text: a folder of text files, or a JSONL file",
    )
    run.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to train (default: auto, CUDA where there is one)",
    )
    run.add_argument(
        "--once", action="store_true", help="stop after one round; the status says what came of it"
    )
    _add_passphrase(run, "opens the key files")
    run.set_defaults(run=_run)


def _add_publish(publish: argparse.ArgumentParser) -> None:
    _add_folder(publish)
    publish.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the file; replaced if it is there"
    )
    publish.add_argument(
        "--agree",
        action="store_true",
        required=True,
        help="say that you know what the file tells about you; without it nothing is written",
    )
    _add_passphrase(publish, "opens the key files")
    publish.set_defaults(run=_publish)


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    _add_folder(doctor)
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    _add_passphrase(doctor, "opens the key files")
    doctor.set_defaults(run=_doctor)


def _add_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, metavar="DIR", help="the device's folder")


def _add_passphrase(command: argparse.ArgumentParser, what_for: str) -> None:
    command.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help=f"owner-only file whose first line {what_for}",
    )


if __name__ == "__main__":
    sys.exit(main())
