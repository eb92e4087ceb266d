"""Found a federation in a folder that is made aside and renamed: a crash leaves all or nothing."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from models.data.language_lists import NOTICE, language_list, list_name
from privacy.foundation.atomic_files import READABLE, sync_folder, write_atomically
from privacy.foundation.secure_source import SecureSource
from privacy.identities.authority import CertificateAuthority, read_authority_certificate
from privacy.identities.certificates import check_host, fingerprint
from privacy.identities.invite import Invite, OtherAddress
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.keys import make_private_folder
from privacy.identities.party import Identity
from server.config.federation import FederationConfig, parse_config, rooted
from server.config.listen import joined
from server.config.plans import make_plan
from server.config.public_hosts import has_listen_table, with_public_hosts
from server.devices.known_helper import known_helper
from server.devices.own_keys import certify_coordinator
from server.devices.tokens import create_tokens, renew_token
from server.machine.nonces import SECRET_BYTES
from server.records.folder import ServerFolder
from server.records.store import check_run, open_store, start_run

_RUN_BYTES = 16
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)
_LISTEN_TABLE = """
[listen]
enrolment = "0.0.0.0:7440"
devices = "0.0.0.0:7441"
"""


class FoundingError(Exception):
    """Raised when a federation cannot be founded or extended; the text says why."""


def found(
    root: Path,
    settings: str,
    hostnames: Sequence[str],
    *,
    source: str = "the settings",
    passphrase: bytes | None = None,
) -> FederationConfig:
    """Make the folder of a new federation and return its settings.

    The settings' host, the loopback's names and ``hostnames`` are certified. ``source`` names the
    settings in error messages. The passphrase, if any, encrypts the authority's key. A word list of
    the settings' languages that is not there yet is made.

    Raises:
        FoundingError: If the folder is not empty.
        PackedModelError: If ``start_from`` is a damaged file.
        ReleaseError: If it is no release.
        StartingModelError: If it is a model of other sizes or of other words, or if its
            hypernetwork cannot be read.
        ConfigError: If the settings cannot be used.
        OSError: If the folder cannot be written.
        ValueError: If a host name cannot stand in a certificate, or a word list cannot be made.
    """
    root = root.absolute()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise FoundingError(f"{root} is not empty; a federation needs a folder of its own")
    text = _with_host(settings, hostnames, source)
    config = parse_config(text, source)
    building = ServerFolder(root.with_name(f".{root.name}.new"))
    shutil.rmtree(building.root, ignore_errors=True)
    try:
        make_private_folder(building.root)
        makes_words = _write_word_list(building.root, config)
        # Other files lie, or are missing, where the folder will be.
        _check(rooted(config, building.root if makes_words else root))
        _fill(building, text, config, hostnames, passphrase)
        if root.exists():
            root.rmdir()
        building.root.rename(root)
    finally:
        shutil.rmtree(building.root, ignore_errors=True)
    sync_folder(root.parent)
    return rooted(config, root)


def _write_word_list(folder: Path, config: FederationConfig) -> bool:
    """Make the list that the settings name in their own folder, with its licence, if they do."""
    words = config.vocabulary
    if words is None or words.path is None or not words.languages:
        return False
    name = list_name(words.languages, words.size)
    if words.path != f"{name}.txt":
        return False
    made = language_list(words.languages, words.size)
    write_atomically(folder / words.path, made.to_bytes(), mode=READABLE)
    notice = NOTICE.format(name=words.path).encode()
    write_atomically(folder / f"{name}.NOTICE", notice, mode=READABLE)
    return True


def _check(config: FederationConfig) -> None:
    """Refuse settings that the first round would fail with, before anything is made."""
    for host in config.listen.advertised_hosts:
        if host in _EVERYWHERE:
            raise FoundingError(
                f"devices cannot be told to connect to {host}; "
                "give the name or address of this machine with --hostname"
            )
    config.load_vocabulary()
    if config.start_from is not None:
        from server.releases.starting_model import check_starting_model  # Here: it imports torch.

        check_starting_model(config, make_plan(config, "0" * 32, cohort_size=1))


def _fill(
    folder: ServerFolder,
    settings: str,
    config: FederationConfig,
    hostnames: Sequence[str],
    passphrase: bytes | None,
) -> None:
    write_atomically(folder.config, settings.encode())
    source = SecureSource()
    run = source.bytes(_RUN_BYTES).hex()
    write_atomically(folder.lease_secret, source.bytes(SECRET_BYTES))
    authority = CertificateAuthority.create(folder.authority, run, passphrase=passphrase)
    issuer = make_issuing_key(folder.authority, authority)
    certify_coordinator(folder, issuer, config, hostnames)
    store = open_store(config.store.rooted(folder.root))
    try:
        start_run(store, run, config.seed, config.run_digest, now=time.time())
    finally:
        store.close()


def write_invites(
    folder: ServerFolder,
    config: FederationConfig,
    out: Path,
    *,
    count: int = 1,
    client: str | None = None,
) -> list[Path]:
    """Make ``count`` tokens, or one for a known client to enrol again, each in an owner-only file.

    Under masks each names the helper, too.

    Raises:
        FoundingError: If the settings name no fixed ports.
        HelperMissingError: If updates are masked and the folder has no helper's certificates.
        CertificateError: If those cannot be used now, or the coordinator's certificate lacks a host
            of the settings.
        UnknownClientError: If there is no such client.
        StoreError: If the store does not fit the settings.
        OSError: If the files cannot be written.
    """
    preferred, *others = _addresses(folder, config)
    helper = known_helper(folder, config)
    authority = read_authority_certificate(folder.authority)
    store = open_store(config.store)
    try:
        run = check_run(store, config.seed, config.run_digest)
        source, now = SecureSource(), time.time()
        if client is None:
            tokens = create_tokens(store, count, source, now=now)
        else:
            tokens = [renew_token(store, client, source, now=now)]
    finally:
        store.close()
    make_private_folder(out)
    written = []
    for token in tokens:
        invite = Invite(
            run=run,
            enrolment_address=preferred.enrolment_address,
            device_address=preferred.device_address,
            ca_certificate=authority,
            ca_sha256=fingerprint(authority).hex(),
            token=token.token.hex(),
            expires_at=token.expires_at,
            helper_certificate=msgspec.UNSET if helper is None else helper.der,
            other_addresses=tuple(others) or msgspec.UNSET,
        )
        path = out / f"invite-{token.client}.json"
        write_atomically(path, invite.encode())
        written.append(path)
    return written


def _with_host(settings: str, hostnames: Sequence[str], source: str) -> str:
    """Return the settings with the host names as ``public_host``, unless they name one."""
    if not hostnames or parse_config(settings, source).listen.public_host is not None:
        return settings
    text = settings if has_listen_table(settings) else settings + _LISTEN_TABLE
    return with_public_hosts(text, hostnames, source)


def _addresses(folder: ServerFolder, config: FederationConfig) -> list[OtherAddress]:
    """Return the two listeners of each host that the settings name, all in the certificate."""
    ports = [
        address.rpartition(":")[2] for address in (config.listen.enrolment, config.listen.devices)
    ]
    if "0" in ports:
        raise FoundingError(
            "listen.enrolment and listen.devices must have fixed ports for an invite, got port 0"
        )
    certificate = Identity.load(folder.identity).tls.certified.der
    for host in config.listen.advertised_hosts:
        check_host(certificate, host)
    return [
        OtherAddress(
            enrolment_address=joined(host, ports[0]), device_address=joined(host, ports[1])
        )
        for host in config.listen.advertised_hosts
    ]
