"""A party that trusts an authority follows its statements to the newest, and no others."""

from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError, certificate_pem
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.succession import read_former, state_successor, successor_of, write_former
from tests.privacy.conftest import NOW, RUN


@pytest.fixture
def authorities(tmp_path: Path) -> list[CertificateAuthority]:
    return [
        CertificateAuthority.create(tmp_path / name, RUN.hex(), now=NOW)
        for name in ("first", "second", "third")
    ]


def stated(former: CertificateAuthority, successor: CertificateAuthority) -> list[bytes]:
    return [successor.certificate, state_successor(former, successor.certificate, now=NOW)]


def test_statements_lead_from_any_former_authority_to_the_newest(
    authorities: list[CertificateAuthority],
) -> None:
    first, second, third = authorities
    shown = [*stated(second, third), *stated(first, second), first.certificate]

    assert successor_of(first.certificate, shown, now=NOW) == third.certificate
    assert successor_of(second.certificate, shown, now=NOW) == third.certificate


def test_a_folder_keeps_what_led_to_it(
    tmp_path: Path, authorities: list[CertificateAuthority]
) -> None:
    first, second, third = authorities
    write_former(tmp_path / "second", tmp_path / "first", first, second.certificate)
    write_former(tmp_path / "third", tmp_path / "second", second, third.certificate)

    former = read_former(tmp_path / "third")

    roots = [certificate_pem(authority.certificate) for authority in (third, second, first)]
    assert former.roots == b"".join(roots)
    assert former.statements.count(b"BEGIN CERTIFICATE") == 5
    assert read_former(tmp_path / "first").statements == b""


@pytest.mark.parametrize("what", ["nobody", "itself", "issuing key", "another key", "too early"])
def test_nothing_else_leads_anywhere(
    tmp_path: Path, authorities: list[CertificateAuthority], what: str
) -> None:
    first, second, third = authorities
    now = NOW
    if what == "nobody":
        shown = []
    elif what == "itself":
        shown = [second.certificate, second.certificate]
    elif what == "issuing key":
        # The loot of an issuing key's thief: a certificate by the authority that may sign.
        issuer = make_issuing_key(tmp_path / "first", first, now=NOW)
        shown = [issuer.issuing, issuer.issuing]
    elif what == "another key":
        shown = [third.certificate, state_successor(first, second.certificate, now=NOW)]
    else:
        shown, now = stated(first, second), NOW - 26 * 3600

    with pytest.raises(CertificateError, match="nor of one that it names as its successor"):
        successor_of(first.certificate, shown, now=now)


def test_the_former_roots_are_given_without_the_one_that_counts(
    tmp_path: Path, authorities: list[CertificateAuthority]
) -> None:
    first, second, third = authorities
    write_former(tmp_path / "second", tmp_path / "first", first, second.certificate)
    write_former(tmp_path / "third", tmp_path / "second", second, third.certificate)

    assert read_former(tmp_path / "first").root_certificates == ()
    assert read_former(tmp_path / "third").root_certificates == (
        second.certificate,
        first.certificate,
    )
