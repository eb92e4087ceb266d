"""Run ``sotto-client``: enrol a device, take part in a federation, and diagnose problems."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

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
    Floor,
    FloorError,
    PlanBelowFloorError,
    check_authority,
    check_data,
    read_floor,
)
from edge_client.owner.floor_in_words import floor_in_words
from edge_client.owner.pinned_helper import helper_in_words, read_helper
from edge_client.owner.sensors import system_sensors
from edge_client.owner.settings import (
    ClientSettings,
    ClientSettingsError,
    read_client_settings,
    write_starting_settings,
)
from edge_client.owner.starting_floor import write_starting_floor
from edge_client.owner.traffic import Traffic
from edge_client.wire.enrolling import enrol_device
from edge_client.wire.refusal import RefusedError, UnreachableError
from models.plugins.loaded import load_plugins
from models.plugins.names import PluginError
from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import Flag, command_line, read_arguments
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.toml_schema import print_schema, toml_schema
from privacy.identities.certificates import CertificateError, fingerprint
from privacy.identities.invite import InviteError, read_invite
from privacy.identities.keys import KeyFileError, read_passphrase
from privacy.identities.party import Identity

if TYPE_CHECKING:
    from edge_client.owner.finding import Finding

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
    PluginError,
    PublishingError,
    RefusedError,
    UnreachableError,
)


class OnDevice(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command on one device.

    Attributes:
        folder: The device's folder.
        passphrase_file: Owner-only file whose first line opens the key files.
    """

    folder: Annotated[Path, Flag("DIR", positional=True)]
    passphrase_file: Annotated[Path | None, Flag("FILE")] = None

    @property
    def passphrase(self) -> bytes | None:
        """Return what opens the key files, read now."""
        return None if self.passphrase_file is None else read_passphrase(self.passphrase_file)


class Enrolling(OnDevice, frozen=True, kw_only=True):
    """A device to enrol.

    Attributes:
        folder: The device's folder; made here.
        invite: File from sotto-server token.
        accept_no_guarantee: Let the starting floor accept noise modes that promise no privacy, too.
        passphrase_file: Owner-only file whose first line encrypts the key files.
    """

    invite: Annotated[Path, Flag("FILE")]
    accept_no_guarantee: bool = False


class Running(OnDevice, frozen=True, kw_only=True):
    """Work of a device.

    Attributes:
        data: This person's text: a folder of text files, or a JSONL file.
        device: Processor to train on (default: auto, CUDA if there is one).
        once: Stop after one round; the status says what came of it.
    """

    data: Annotated[Path, Flag("PATH")]
    device: Literal["auto", "cpu", "cuda"] = "auto"
    once: bool = False


class Publishing(OnDevice, frozen=True, kw_only=True):
    """A file to write of the device's own part.

    Attributes:
        out: The file; replaced if it is there.
        agree: Say that you know what the file tells about you; without it nothing is written.
    """

    out: Annotated[Path, Flag("FILE")]
    agree: bool


class Examination(OnDevice, frozen=True, kw_only=True):
    """A check of a device.

    Attributes:
        data: This person's text, to say what a round would make of it.
        json: Print one JSON object.
    """

    data: Annotated[Path | None, Flag("PATH")] = None
    json: bool = False


class SchemaOf(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an owner's settings.

    Attributes:
        file: The file, by its name.
    """

    file: Annotated[Literal["floor.toml", "client.toml"], Flag("FILE", positional=True)]


@command("sotto-client")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = command_line(
        "sotto-client",
        "Enrol this device, take part in a federation, and diagnose problems.",
        (_enrol, _run, _publish, _doctor, _schema),
        epilogs={"run": STATUSES},
    )
    parser.add_argument("--verbose", action="store_true", help="log every step to stderr")
    arguments = read_arguments(parser, argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    # Everything this command makes belongs to one person.
    os.umask(0o077)
    try:
        check_installation()
        status: int = arguments.handler(arguments.settings)
    except DatasetError as error:
        print(f"sotto-client: {error}", file=sys.stderr)
        return DATA_UNUSABLE
    except _FAILURES as error:
        return failed("sotto-client", error)
    except KeyboardInterrupt:
        return 0
    return status


def _enrol(asked: Enrolling) -> int:
    """Turn an invite into this device's identity."""
    invite, passphrase = read_invite(asked.invite), asked.passphrase
    authority, helper = invite.ca_certificate, None
    if invite.helper is not None:
        helper = read_helper(invite.helper, authority=authority, now=time.time()).sha256.hex()
    folder = DeviceFolder(asked.folder)
    # A device that enrols again has a floor, which may pin authorities.
    pinned = read_floor(folder.floor).authorities if folder.floor.exists() else None
    check_authority(invite.ca_sha256, pinned)
    enrolment = asyncio.run(
        enrol_device(folder, invite, now=time.time(), passphrase=passphrase, authorities=pinned)
    )
    write_starting_floor(
        folder.floor,
        accepts_no_guarantee=asked.accept_no_guarantee,
        helper=helper,
    )
    write_starting_settings(folder.client_settings)
    print(f"enrolled as {enrolment.client_name} at {' or '.join(enrolment.device_addresses)}")
    print(f"what it accepts: {folder.floor}; when it works: {folder.client_settings}")
    try:
        floor = read_floor(folder.floor)
        print("\n".join(floor_in_words(floor)))
        if invite.helper is not None:
            _, told = helper_in_words(invite.helper, floor.helpers, authority=authority)
            print(told)
    except FloorError as error:
        # Enrolled again with a floor of its own, which the device asks for before it works.
        print(error)
    print(f"next: sotto-client run {asked.folder} --data PATH")
    return 0


def _run(asked: Running) -> int:
    """Check in and train until stopped."""
    folder = DeviceFolder(asked.folder)
    enrolment = folder.enrolment()
    settings = read_client_settings(folder.client_settings)
    if asked.once or not asked.data.exists():
        # Told now: the agent may wait for hours until it looks itself.
        check_data_at_hand(asked.data)
    floor = read_floor(folder.floor)
    load_plugins(floor.plugins)
    check_data(asked.data, floor)
    check_authority(fingerprint(enrolment.ca_certificate).hex(), floor.authorities)
    passphrase = asked.passphrase
    # Told now: the agent may wait for hours until the device's policy lets it use its keys.
    Identity.load(folder.identity, passphrase)
    device = Device(
        folder=folder,
        client_name=enrolment.client_name,
        data=asked.data.absolute(),
        compute=asked.device,
        floor=floor,
        trainer=ChildTrainer(settings.keep_warm_s),
        traffic=Traffic(folder.path / "traffic.json"),
        passphrase=passphrase,
    )
    agent = Agent(
        device,
        addresses=settings.addresses or enrolment.device_addresses,
        policy=settings.policy,
        sensors=system_sensors(),
    )
    with folder.sole_agent():
        ended = asyncio.run(_until_stopped(agent, once=asked.once))
    return _told(ended) if asked.once else 0


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


async def _until_stopped(agent: Agent, *, once: bool) -> Ended | None:
    """Run the agent until it ends, or until SIGTERM or Ctrl-C; return None if it was stopped."""
    running = asyncio.ensure_future(agent.run(once=once))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None


def _publish(asked: Publishing) -> int:
    """Write this device's own part of the model into a signed file, to hand over.

    Write the part of the model that is this person's alone, and never leaves the device otherwise,
    into a signed file. Nothing is sent. Anyone who has the file can make this person's keyboard
    from it, and can learn from it what was learnt from this person's text.
    """
    done = publish_elsewhere(asked.folder, asked.out, asked.passphrase)
    print(f"{asked.out}: {done.size_bytes:,} bytes, {len(done.tensors)} tensors, signed")
    print(f"it holds what only this device knew: {', '.join(done.tensors)}")
    print(
        "nothing was sent; anyone who has this file can learn from it what was learnt from your "
        "text"
    )
    return 0


def _doctor(asked: Examination) -> int:
    """Check everything a device needs."""
    from edge_client.owner.doctor import examine

    folder, passphrase = DeviceFolder(asked.folder), asked.passphrase
    findings = asyncio.run(examine(folder, now=time.time(), passphrase=passphrase))
    if asked.data is not None:
        from edge_client.agent.own_data import examine_own_data

        findings += examine_own_data(folder, asked.data, now=time.time())
    if asked.json:
        print(json.dumps({finding.subject: finding.as_dict() for finding in findings}))
    else:
        _show(findings)
    return 0 if all(finding.good for finding in findings) else 1


def _schema(asked: SchemaOf) -> int:
    """Print the JSON schema of a file, for editors that complete and check it."""
    kinds: dict[str, type[msgspec.Struct]] = {"floor.toml": Floor, "client.toml": ClientSettings}
    print_schema(toml_schema(kinds[asked.file], asked.file))
    return 0


def _show(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "what", box=None)
    # A digest is there to be compared: where it does not fit a line, it goes on in the next.
    table.add_column("found", overflow="fold")
    for finding in findings:
        mark = "[green]ok[/]" if finding.good else "[red]no[/]"
        table.add_row(mark, finding.subject, finding.text)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
