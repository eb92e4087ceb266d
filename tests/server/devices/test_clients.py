from collections.abc import Callable

import pytest

from protos.refusals import RefusalCode
from server.devices.clients import (
    CallerError,
    UnknownClientError,
    check_caller,
    enrol_client,
    list_clients,
    population,
    population_size,
    renew_certificates,
    revoke_client,
)
from server.devices.device_certificates import StoredCertificate, certificates_of, find_certificate
from server.records.store import Store

Certificate = Callable[[str, str, int], StoredCertificate]
USES = ("tls", "wrapping", "signing")
ONE = "device-0001"


def refusal(store: Store, sha256: bytes, now: float = 20.0) -> RefusalCode:
    with pytest.raises(CallerError) as refused:
        check_caller(store, sha256, now=now)
    return refused.value.code


def test_a_client_is_known_by_its_tls_certificate_alone(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    assert check_caller(store, certificate(ONE, "tls", 1).sha256, now=20.0) == ONE
    signing = certificate(ONE, "signing", 1).sha256
    assert refusal(store, signing) is RefusalCode.CERTIFICATE_UNKNOWN
    assert refusal(store, bytes(32)) is RefusalCode.CERTIFICATE_UNKNOWN


def test_an_expired_certificate_gives_no_right(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    tls = certificate(ONE, "tls", 1).sha256

    assert check_caller(store, tls, now=1000.0) == ONE
    assert refusal(store, tls, now=1000.5) is RefusalCode.CERTIFICATE_EXPIRED


def test_a_revoked_client_may_not_call_and_is_not_drawn(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    revoke_client(store, ONE, now=20.0)
    revoke_client(store, ONE, now=30.0)

    tls = certificate(ONE, "tls", 1).sha256
    assert refusal(store, tls) is RefusalCode.CERTIFICATE_REVOKED
    assert population(store) == ["device-0002", "device-0003"]
    assert population_size(store) == 2
    assert certificates_of(store, ONE, "wrapping") == []
    assert list_clients(store)[0].revoked_at == 20.0
    assert check_caller(store, certificate("device-0002", "tls", 1).sha256, now=20.0)


def test_after_a_renewal_the_new_and_the_old_certificate_are_good_and_no_older_one(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    for generation, now in ((2, 30.0), (3, 40.0)):
        given = [certificate(ONE, use, generation) for use in USES]
        renew_certificates(store, ONE, given, now=now)
        renew_certificates(store, ONE, given, now=now + 1)

    held = certificates_of(store, ONE, "wrapping")

    assert held == [certificate(ONE, "wrapping", 3), certificate(ONE, "wrapping", 2)]
    first = certificate(ONE, "tls", 1).sha256
    assert refusal(store, first) is RefusalCode.CERTIFICATE_UNKNOWN
    assert find_certificate(store, certificate(ONE, "signing", 2).sha256) is not None
    assert len(certificates_of(store, "device-0002", "tls")) == 1


def test_a_revoked_client_cannot_renew(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    revoke_client(store, ONE, now=20.0)

    with pytest.raises(UnknownClientError, match="device-0001 was revoked"):
        renew_certificates(store, ONE, [certificate(ONE, "tls", 2)], now=30.0)


def test_enrolling_again_replaces_every_certificate(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    revoke_client(store, ONE, now=20.0)

    with store.write() as connection:
        enrol_client(connection, ONE, [certificate(ONE, "tls", 2)], now=30.0)

    first = certificate(ONE, "tls", 1).sha256
    assert refusal(store, first) is RefusalCode.CERTIFICATE_UNKNOWN
    assert check_caller(store, certificate(ONE, "tls", 2).sha256, now=30.0) == ONE


def test_an_unknown_client_is_named(store: Store) -> None:
    with pytest.raises(UnknownClientError, match="no client 'device-0009'"):
        revoke_client(store, "device-0009", now=1.0)
