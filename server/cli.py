"""Run ``sotto-server``: found a federation, invite devices, coordinate them, look after them."""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Sequence

import msgspec

from privacy.accounting.accountant import AccountantsDisagreeError
from privacy.accounting.ledger_chain import LedgerError
from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import command_line, read_arguments
from privacy.foundation.installation import InstallationError, check_installation
from privacy.foundation.memory_pool import keep_freed_memory
from privacy.foundation.toml_schema import schema_command
from privacy.identities.certificates import CertificateError, certificate_time, read_certificate
from privacy.identities.keys import KeyFileError
from privacy.masking.helper_answer import AnswerError
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.masked_settings import MaskedNoise
from server.config.chosen_start import with_start
from server.config.chosen_words import parse_languages, with_languages
from server.config.federation import ConfigError, FederationConfig, preset_text, settings_text
from server.config.shipped_starts import NO_START
from server.devices.clients import UnknownClientError
from server.devices.known_helper import HelperMissingError
from server.operating.backup import BackupError, create_backup, restore_backup
from server.operating.commands import Federation
from server.operating.flags import (
    Asked,
    Backup,
    Founding,
    HelperAdmission,
    Hosted,
    Invites,
    OneClient,
    OnFolder,
    Reported,
    Restoring,
    Rounds,
    Running,
    Succeeding,
    WithAuthority,
    passphrase_in,
)
from server.operating.founding import FoundingError, found, write_invites
from server.operating.leading import LOST_STATUS
from server.operating.ledger_report import ledger_as_json, print_ledger
from server.operating.page import report
from server.operating.report import languages_told, print_rounds, print_status, round_as_json
from server.operating.watching import watch
from server.records.folder import ServerFolder, without_noise_secret
from server.records.lock import AlreadyRunningError
from server.records.store import StoreError
from server.records.tenure import LeadershipLostError
from server.services.admin_client import AdminCallError, NotRunningError
from server.services.listeners import ListenError

_STANDS_BY = 3
# A ValueError here is a setting that cannot be used: a word list, a text, a host name.
_FAILURES = (
    AccountantsDisagreeError,
    AdminCallError,
    AlreadyRunningError,
    AnswerError,
    BackupError,
    CertificateError,
    ConfigError,
    FoundingError,
    HelperMissingError,
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
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2.

    ``status --leads`` has 3 for a coordinator that stands by; see ``leading.LOST_STATUS`` too.
    """
    parser = command_line(
        "sotto-server",
        "Set up a federation, invite devices, run the coordinator and look after it.",
        (
            *(_init, _token, _run, _status, watch, report, _rounds, _ledger, _pause, _resume),
            *(_drain, _revoke, _forget, _rotate_keys, _rotate_issuing_key, _replace_authority),
            *(_admit_helper, _backup, _restore),
            schema_command("federation.toml", lambda: FederationConfig),
        ),
        allow_abbrev=False,
    )
    arguments = read_arguments(parser, argv)
    try:
        check_installation()
        status: int | None = arguments.handler(arguments.settings)
    except LeadershipLostError as error:
        failed("sotto-server", error)
        return LOST_STATUS
    except _FAILURES as error:
        return failed("sotto-server", error)
    return status or 0


def _init(asked: Founding) -> None:
    """Found a federation in a new folder."""
    preset, config = asked.preset or "keyboard", asked.config
    text = preset_text(preset) if config is None else settings_text(config)
    source = f"preset {preset}" if config is None else str(config)
    languages = parse_languages(asked.language) if asked.language else ()
    if languages:
        text = with_languages(text, languages, source)
    # No start that ships is of another language than English.
    start = NO_START if languages and asked.start is None else asked.start
    text = with_start(text, start, source)
    passphrase = passphrase_in(asked.passphrase_file)
    founded = found(asked.folder, text, asked.hostname, source=source, passphrase=passphrase)
    print(f"founded a federation in {asked.folder}")
    hosts = " or ".join(founded.listen.advertised_hosts)
    print(f"devices reach it at {hosts}; settings: federation.toml there")
    if languages:
        print(*languages_told(languages, founded), sep="\n")
    if founded.start_from is not None:
        print(f"it starts from {founded.start_from}, which its first start publishes as round 0")
    print("authority/authority.key there is needed once a year: keep it somewhere else")
    if isinstance(founded.privacy, MaskedNoise):
        print(f"next: give {asked.folder}/authority/authority.crt to whoever runs the helper, for")
        print("`sotto-helper init`; the request that it makes is for `sotto-server admit-helper`")
        return
    print(f"next: sotto-server token {asked.folder} --count 1")


def _token(asked: Invites) -> None:
    """Write invite files; each enrols one device within 24 hours."""
    federation = Federation(asked.folder)
    out = asked.out or asked.folder / "invites"
    paths = write_invites(
        federation.folder, federation.config, out, count=asked.count, client=asked.client
    )
    print(*paths, sep="\n")


def _run(asked: Running) -> None:
    """Coordinate the federation until drained or stopped.

    Several may be started on machines that share the folder and a PostgreSQL: one leads, and the
    others stand by until it ends.
    """
    # Here, because they import torch, which takes a second.
    from server.config.start_lines import promises
    from server.operating.running import Ports, serve

    federation = Federation(asked.folder)
    addresses = {"devices": asked.devices, "enrolment": asked.enrolment}
    here = {name: address for name, address in addresses.items() if address is not None}
    listen = msgspec.structs.replace(federation.config.listen, **here)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)

    def on_ready(ports: Ports) -> None:
        figures = "" if ports.metrics is None else f", figures on port {ports.metrics}"
        print(f"enrolment on port {ports.enrolment}, devices on port {ports.devices}{figures}")
        for line in promises(federation.config):
            print(f"privacy: {line}")
        if federation.config.growth_told:
            print(f"growth: {federation.config.growth_told}")
        print(f"personalisation: {federation.config.travel}", flush=True)

    keep_freed_memory()
    asyncio.run(serve(federation.folder, federation.config, listen=listen, on_ready=on_ready))


def _status(asked: Asked) -> int:
    """Say where the run stands, and who leads it."""
    federation = Federation(asked.folder)
    if asked.leads:
        return 0 if federation.leads_here() else _STANDS_BY
    report = federation.status()
    if asked.json:
        print(msgspec.json.encode(report).decode())
    else:
        print_status(report)
    return 0


def _rounds(asked: Rounds) -> None:
    """List released rounds; durations in seconds."""
    rounds = Federation(asked.folder).rounds(asked.first_round)
    if asked.json:
        print(json.dumps([round_as_json(summary) for summary in rounds]))
    else:
        print_rounds(rounds)


def _ledger(asked: Reported) -> None:
    """List what was released, and the privacy it spent."""
    ledger, spent = Federation(asked.folder).ledger()
    if asked.json:
        print(ledger_as_json(ledger, spent))
    else:
        print_ledger(ledger.entries, spent)


def _pause(asked: OnFolder) -> None:
    """Open no new round until resumed, also after a restart."""
    Federation(asked.folder).pause()
    print("paused: the running round goes on, no new one opens")


def _resume(asked: OnFolder) -> None:
    """Open rounds again, also one that was given up."""
    Federation(asked.folder).resume()
    print("resumed")


def _drain(asked: OnFolder) -> None:
    """Finish the running round, then stop the coordinator."""
    Federation(asked.folder).drain()
    print("draining: the coordinator stops when the running round has ended")


def _revoke(asked: OneClient) -> None:
    """Withdraw a device's certificates and unused invites at once."""
    Federation(asked.folder).revoke(asked.client)
    print(f"revoked {asked.client}")


def _forget(asked: OneClient) -> None:
    """Revoke a device and delete what is known of it."""
    count = Federation(asked.folder).forget(asked.client)
    print(f"forgot {asked.client}; {count} updates that waited were deleted")


def _rotate_keys(asked: Hosted) -> None:
    """Replace the keys of a stopped coordinator.

    Replace the coordinator's keys while it is stopped. With --hostname, the new certificate and
    invites from now on have these names, in place of those in federation.toml; the certificate has
    those too, for the devices that know them.
    """
    Federation(asked.folder).rotate_keys(asked.hostname)
    print("rotated the coordinator's keys; devices that have met them refuse the former ones")
    if asked.hostname:
        print(f"invites name {' or '.join(asked.hostname)} from now on; for a device that is")
        print("enrolled, `coordinator` in its client.toml, or enrolling again, gives all of them")


def _rotate_issuing_key(asked: WithAuthority) -> None:
    """Replace the issuing key and the keys of a stopped coordinator.

    Needs the authority's key, once a year and after a theft. Devices that have met the new keys
    refuse whatever the former issuing key certifies for a coordinator.
    """
    federation = Federation(asked.folder)
    end = federation.rotate_issuing_key(asked.authority_key, passphrase_in(asked.passphrase_file))
    print(f"rotated the issuing key and the coordinator's keys; the next by {end}")


def _replace_authority(asked: Succeeding) -> None:
    """Move a stopped federation to a new authority that the old one names.

    Devices follow at their next connection, without enrolling, unless their floor pins the old one.
    """
    fingerprint = Federation(asked.folder).replace_authority(
        asked.authority_key,
        passphrase_in(asked.passphrase_file),
        passphrase_in(asked.new_passphrase_file),
    )
    print(f"the federation's authority is now {fingerprint}")
    print(f"take authority/authority.key away from {asked.folder}, and destroy authority.former")


def _admit_helper(asked: HelperAdmission) -> None:
    """Certify a helper's request, for a year.

    Needs the authority's key: what a coordinator could certify by itself would be no second party.
    """
    federation = Federation(asked.folder)
    request, admitted = federation.admit_helper(
        asked.request, asked.authority_key, passphrase_in(asked.passphrase_file)
    )
    wrapping = read_certificate(admitted.wrapping)
    print(f"certified the request {request.sha256}: have its owner tell you that in another way,")
    print(f"and run no round before. It is good until {certificate_time(wrapping.not_after)}")
    print(f"its wrapping key's certificate is {wrapping.sha256.hex()}, which a floor may pin")
    print(f"send {federation.folder.helper} to its owner, for `sotto-helper admit`")
    print("a coordinator that runs takes it up at its next start")


def _backup(asked: Backup) -> None:
    """Write store, keys and releases into one archive."""
    federation = Federation(asked.folder)
    manifest = create_backup(
        federation.folder, federation.config.store, asked.out.absolute(), now=time.time()
    )
    print(f"wrote {asked.out}: run {manifest.run}, last round {manifest.last_round}")
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


def _restore(asked: Restoring) -> None:
    """Unpack an archive into a new folder."""
    root = ServerFolder(asked.folder.absolute())
    manifest = restore_backup(asked.archive, root)
    print(f"restored run {manifest.run} at round {manifest.last_round} into {asked.folder}")
    print(
        "paused: whoever was revoked, forgotten or invited since the backup is as before it. Do "
        "all of that again, and `sotto-server rotate-keys`: devices refuse keys older than those "
        "they have met. Then `sotto-server run`, which goes on with a round that was open, then "
        "`sotto-server resume`"
    )
    print("do not run the folder that was backed up beside this one")
    if isinstance(Federation(asked.folder).config.privacy, TreeNoise):
        print(f"noise.secret is in no backup: {without_noise_secret(root)}")
        return
    if isinstance(Federation(asked.folder).config.privacy, MaskedNoise):
        print(
            "the helper answers no attempt older than its newest answer: if it has answered since "
            f'the backup, found a new run with start_from = "{root.releases / "latest"}", whose '
            "ledger begins anew: its epsilons come on top of what this run had spent"
        )
        return
    print(
        f"rounds after {manifest.last_round} will be trained again; what they released is not in "
        "the restored ledger: under a privacy guarantee, what they spent comes on top of what it "
        "says"
    )


if __name__ == "__main__":
    sys.exit(main())
