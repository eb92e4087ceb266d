"""Invite files: whole or refused, and never showing their token."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.identities.invite import Invite, InviteError, read_invite
from protos.version import PROTOCOL_VERSION, version_mismatch

CA = b"a certificate"


def invite(**changes: object) -> Invite:
    fields: dict[str, object] = {
        "run": "ab" * 16,
        "enrolment_address": "sotto.test:7440",
        "device_address": "[::1]:7441",
        "ca_certificate": CA,
        "ca_sha256": hashlib.sha256(CA).hexdigest(),
        "token": "0f" * 16,
        "expires_at": 1.8e9,
    }
    return msgspec.convert(fields | changes, Invite)


def test_an_invite_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "invite.json").write_bytes(invite().encode())

    assert read_invite(tmp_path / "invite.json") == invite()


def test_an_invite_without_a_helper_has_no_key_that_earlier_devices_do_not_know() -> None:
    assert b"helper" not in invite().encode()
    assert invite().helper is None
    assert invite(helper_certificate=b"a certificate").helper == b"a certificate"


def test_an_invite_with_one_address_is_byte_for_byte_what_it_was() -> None:
    assert invite().encode().decode() == (
        '{\n  "format_version": 1,\n  "run": "abababababababababababababababab",\n'
        '  "enrolment_address": "sotto.test:7440",\n  "device_address": "[::1]:7441",\n'
        '  "ca_certificate": "YSBjZXJ0aWZpY2F0ZQ==",\n'
        f'  "ca_sha256": "{hashlib.sha256(CA).hexdigest()}",\n'
        '  "token": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",\n  "expires_at": 1800000000.0\n}\n'
    )
    assert (invite().enrolment_addresses, invite().device_addresses) == (
        ("sotto.test:7440",),
        ("[::1]:7441",),
    )


HOSTS = st.builds(
    lambda form, number: form.format(number),
    st.sampled_from(["m{}.sotto.test", "[fe80::{:x}]", "10.0.0.{}"]),
    st.integers(min_value=1, max_value=254),
)
PORTS = st.integers(min_value=1, max_value=65_535)


@given(
    st.lists(st.tuples(HOSTS, PORTS, PORTS), min_size=1, max_size=8, unique_by=lambda each: each[0])
)
def test_addresses_come_out_of_an_invite_as_they_went_in(
    machines: list[tuple[str, int, int]],
) -> None:
    enrolment = tuple(f"{host}:{port}" for host, port, _ in machines)
    devices = tuple(f"{host}:{port}" for host, _, port in machines)
    others = [
        {"enrolment_address": each, "device_address": other}
        for each, other in zip(enrolment[1:], devices[1:], strict=True)
    ]
    more = {"other_addresses": others} if others else {}

    made = invite(enrolment_address=enrolment[0], device_address=devices[0], **more)
    read = msgspec.json.decode(made.encode(), type=Invite)

    assert (read, read.enrolment_addresses, read.device_addresses) == (made, enrolment, devices)
    assert (b"other_addresses" in made.encode()) is (len(machines) > 1)


def others(*hosts: str) -> list[dict[str, str]]:
    return [{"enrolment_address": f"{host}:1", "device_address": f"{host}:2"} for host in hosts]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"other_addresses": others("b", "b")}, "each address once, got 'b:1' twice"),
        ({"other_addresses": others("SOTTO.test", "b:")}, 'must be "host:port"'),
        ({"other_addresses": others(*("b" * n for n in range(1, 9)))}, "1 to 8 addresses, got 9"),
        ({"other_addresses": [{"enrolment_address": "b:1"}]}, "missing required field"),
        ({"device_address": "sotto.test:0"}, "port from 1 to 65535"),
        ({"enrolment_address": "sotto.test"}, 'enrolment_address must be "host:port"'),
        ({"device_address": "http://sotto.test:1"}, 'device_address must be "host:port"'),
        ({"ca_certificate": b"another"}, "the file was changed"),
        ({"token": "0F" * 16}, "token must be 32 lower-case hex digits"),
        ({"token": "0f" * 15}, "token must be 32 lower-case hex digits"),
        ({"expires_at": float("nan")}, "expires_at must be > 0 and finite"),
    ],
)
def test_an_invite_that_cannot_be_used_is_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text) as caught:
        invite(**changes)

    assert "0f0f" not in str(caught.value).lower()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        invite().encode().replace(b'"run"', b'"ran"'),
        invite().encode().replace(b'"format_version": 1', b'"format_version": 2'),
        invite().encode()[:-20],
        invite(other_addresses=others("b")).encode().replace(b'"b:2"', b'"b:2", "name": "b"'),
        invite(other_addresses=others("b")).encode().replace(b"[\n", b"[" + b"{}," * 9_000),
        invite(other_addresses=others("b")).encode().replace(b"[\n", b"[" + b"{}," * 900_000),
    ],
    ids=lambda content: f"{len(content)} bytes",
)
def test_a_file_that_is_no_invite_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "invite.json").write_bytes(content)

    with pytest.raises(InviteError, match=r"invite\.json is no invite"):
        read_invite(tmp_path / "invite.json")
    with pytest.raises(InviteError, match=r"cannot read invite .*absent"):
        read_invite(tmp_path / "absent")


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_and_never_crash(content: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(content, type=Invite)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_the_older_side_is_the_one_with_the_smaller_version(theirs: int) -> None:
    text = version_mismatch(theirs, us="we", them="they")

    if theirs == PROTOCOL_VERSION:
        assert text is None
    else:
        assert text is not None
        assert ("we is older" in text) == (theirs > PROTOCOL_VERSION)
