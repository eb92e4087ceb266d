"""The folder of a new federation, and the invites into it."""

import re
import time
from pathlib import Path

import pytest

from models.settings.model import schema_of
from models.text.vocabulary import VocabularyError
from privacy.identities.certificates import hostnames_of
from privacy.identities.invite import read_invite
from privacy.identities.party import Identity
from server.cli import main
from server.config.federation import ConfigError, preset_text, read_config
from server.devices.own_keys import rotate_keys
from server.devices.tokens import LIFE_S, TokenError, check_token
from server.operating.founding import FoundingError, found, write_invites
from server.records.folder import ServerFolder
from server.records.store import StoreError, check_run, open_store

TINY = preset_text("keyboard-tiny")
TRAVEL = (
    'uplink = "int8"\nentropy = "zstd"',
    'uplink = "int4"\nerror_feedback = true',
    'uplink = "none"\nlayer_groups = 2',
    'uplink = "none"\ndownlink = "delta"\ndownlink_step = 0.5',
)


def test_a_federation_has_keys_a_run_and_a_host(tmp_path: Path) -> None:
    config = found(tmp_path / "f", TINY, ["sotto.test", "10.0.0.7"])

    folder = ServerFolder(tmp_path / "f")
    identity = Identity.load(folder.identity)
    assert (identity.name, identity.role) == ("coordinator", "coordinator")
    certificate = identity.tls.certified.der
    # X.509 keeps names as they are and addresses as bytes.
    assert b"sotto.test" in certificate
    assert bytes((10, 0, 0, 7)) in certificate
    assert bytes((127, 0, 0, 1)) in certificate
    assert config.listen.advertised_hosts == ("sotto.test", "10.0.0.7")
    (file,) = write_invites(folder, config, tmp_path / "invites")
    invite = read_invite(file)
    assert invite.device_addresses == ("sotto.test:7441", "10.0.0.7:7441")
    assert invite.enrolment_addresses == ("sotto.test:7440", "10.0.0.7:7440")
    assert invite.ca_certificate == identity.authority
    store = open_store(config.store)
    try:
        assert invite.run == check_run(store, config.seed, schema_of(config.model).sha256)
        assert check_token(store, bytes.fromhex(invite.token), b"", now=time.time()).startswith(
            "device-"
        )
        with pytest.raises(TokenError):
            check_token(store, bytes.fromhex(invite.token), b"", now=time.time() + LIFE_S + 1)
    finally:
        store.close()


@pytest.mark.slow
def test_how_updates_and_releases_travel_may_change_while_a_run_lasts(tmp_path: Path) -> None:
    founded = found(tmp_path / "f", TINY, ["sotto.test"])
    settings, store = ServerFolder(tmp_path / "f").config, open_store(founded.store)
    text = settings.read_text()

    try:
        run = check_run(store, founded.seed, founded.run_digest)
        for table in TRAVEL:
            settings.write_text(f"{text}\n[compression]\n{table}\n")
            changed = read_config(settings)
            assert changed.compression is not None
            assert check_run(store, changed.seed, changed.run_digest) == run
    finally:
        store.close()


@pytest.mark.slow
def test_a_listen_table_gets_the_host_in_place(tmp_path: Path) -> None:
    text = TINY + '\n[listen]\nenrolment = "0.0.0.0:1000"\ndevices = "0.0.0.0:1001"\n'

    config = found(tmp_path / "f", text, ["sotto.test"])

    assert config.listen.public_host == "sotto.test"
    assert config.listen.devices == "0.0.0.0:1001"


def test_an_address_for_everyone_needs_a_name(tmp_path: Path) -> None:
    text = TINY + '\n[listen]\nenrolment = "0.0.0.0:1000"\ndevices = "0.0.0.0:1001"\n'

    with pytest.raises(FoundingError, match="--hostname"):
        found(tmp_path / "f", text, [])

    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")

    with pytest.raises(FoundingError, match="is not empty"):
        found(tmp_path, TINY, [])

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_settings_that_cannot_be_used_found_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quorom"):
        found(tmp_path / "f", TINY.replace("quorum", "quorom"), [])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hosts", [[], ["--hostname", "sotto.test"]], ids=["alone", "with a host"])
def test_the_command_names_the_file_that_has_the_typo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: list[str]
) -> None:
    typo = tmp_path / "t.toml"
    typo.write_text(TINY.replace("quorum", "quorom"))

    assert main(["init", str(tmp_path / "f"), "--config", str(typo), *hosts]) == 1

    assert capsys.readouterr().err.startswith(f"sotto-server: {typo}: ")
    assert list(tmp_path.iterdir()) == [typo]


def test_a_missing_word_list_is_looked_for_where_the_federation_will_lie(tmp_path: Path) -> None:
    text = TINY.replace('name = "english-10k"', 'path = "words.txt"')

    with pytest.raises(VocabularyError, match=re.escape(str(tmp_path / "f" / "words.txt"))):
        found(tmp_path / "f", text, [])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_invites_need_fixed_ports_and_the_same_model(tmp_path: Path) -> None:
    text = TINY + '\n[listen]\nenrolment = "127.0.0.1:0"\ndevices = "127.0.0.1:0"\n'
    config = found(tmp_path / "f", text, [])
    folder = ServerFolder(tmp_path / "f")

    with pytest.raises(FoundingError, match="fixed ports"):
        write_invites(folder, config, tmp_path / "invites")

    other = found(tmp_path / "g", TINY.replace("hidden_size = 64", "hidden_size = 65"), [])
    (tmp_path / "g" / "store.sqlite").write_bytes((tmp_path / "f" / "store.sqlite").read_bytes())
    with pytest.raises(StoreError, match="schema must stay"):
        write_invites(ServerFolder(tmp_path / "g"), other, tmp_path / "invites")


@pytest.mark.slow
def test_a_federation_gets_a_second_machine_with_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = found(tmp_path / "f", f"# Mine.\n{TINY}", ["a.test"])
    folder = ServerFolder(tmp_path / "f")
    before = folder.config.read_text()

    # A person who only writes the name into the settings is told what is missing, and where.
    folder.config.write_text(before.replace('"a.test"', '["a.test", "b.test"]'))
    assert main(["token", str(tmp_path / "f")]) == 1
    told = capsys.readouterr().err
    assert "must name b.test, got a.test, localhost, 127.0.0.1, ::1; " in told
    assert "sotto-server rotate-keys FEDERATION --hostname" in told
    folder.config.write_text(before)
    names = ["--hostname", "b.test", "--hostname", "fe80::7", "--hostname", "a.test"]
    assert main(["rotate-keys", str(tmp_path / "f"), *names]) == 0

    changed = read_config(folder.config)
    assert changed.listen.public_host == ("b.test", "fe80::7", "a.test")
    assert folder.config.read_text().splitlines()[0] == "# Mine."
    (file,) = write_invites(folder, changed, tmp_path / "invites")
    addresses = ("b.test:7441", "[fe80::7]:7441", "a.test:7441")
    assert read_invite(file).device_addresses == addresses
    # A renewal, of which nobody tells the names, keeps them all.
    rotate_keys(folder, changed, [])
    names = hostnames_of(Identity.load(folder.identity).tls.certified.der)
    assert {"a.test", "b.test", "fe80::7", *config.listen.advertised_hosts} <= set(names)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a.test", "A.test"], "--hostname must give each address once"),
        (["a.test:7441"], "--hostname must be a name or an address without a port"),
    ],
)
def test_host_names_that_cannot_be_used_found_nothing(
    tmp_path: Path, names: list[str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        found(tmp_path / "f", TINY, names)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_rotated_keys_are_new_and_the_old_wrapping_key_still_opens(tmp_path: Path) -> None:
    config = found(tmp_path / "f", TINY, [])
    folder = ServerFolder(tmp_path / "f")
    before = Identity.load(folder.identity)

    rotate_keys(folder, config, ["further.test"])

    after = Identity.load(folder.identity)
    assert after.authority == before.authority
    assert after.signing.certified.sha256 != before.signing.certified.sha256
    assert [pair.certified.sha256 for pair in after.wrapping_pairs][1] == (
        before.wrapping.certified.sha256
    )
    assert b"further.test" in after.tls.certified.der
