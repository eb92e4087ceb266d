import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from privacy.foundation.secure_source import SecureSource
from protos.refusals import RefusalCode
from server.devices.clients import (
    UnknownClientError,
    check_caller,
    list_clients,
    population,
    revoke_client,
)
from server.devices.device_certificates import StoredCertificate
from server.devices.tokens import (
    LIFE_S,
    NewToken,
    TokenError,
    check_token,
    create_tokens,
    redeem_token,
    renew_token,
)
from server.records.store import Store

Certificate = Callable[[str, str, int], StoredCertificate]
USES = ("tls", "wrapping", "signing")
MINE = hashlib.sha256(b"my signing requests").digest()
THEIRS = hashlib.sha256(b"their signing requests").digest()


@pytest.fixture
def token(store: Store) -> NewToken:
    return create_tokens(store, 1, SecureSource(), now=0.0)[0]


def refusal(store: Store, token: bytes, requests: bytes = MINE, now: float = 1.0) -> RefusalCode:
    with pytest.raises(TokenError) as checked:
        check_token(store, token, requests, now=now)
    with pytest.raises(TokenError) as redeemed:
        redeem_token(store, token, requests, [], now=now)
    assert checked.value.code is redeemed.value.code
    return checked.value.code


def test_tokens_name_the_next_clients_and_no_name_is_given_twice(store: Store) -> None:
    first = create_tokens(store, 2, SecureSource(), now=0.0)
    second = create_tokens(store, 1, SecureSource(), now=LIFE_S * 2)

    assert [token.client for token in (*first, *second)] == [
        "device-0001",
        "device-0002",
        "device-0003",
    ]
    assert len({token.token for token in (*first, *second)}) == 3
    assert all(len(token.token) == 16 for token in first)


def test_a_token_enrols_its_client_once(
    store: Store, token: NewToken, certificate: Certificate
) -> None:
    given = [certificate(token.client, use, 1) for use in USES]
    assert check_token(store, token.token, MINE, now=1.0) == token.client

    assert redeem_token(store, token.token, MINE, given, now=1.0) == given

    assert check_caller(store, given[0].sha256, now=2.0) == token.client
    assert population(store) == [token.client]
    assert refusal(store, token.token, THEIRS) is RefusalCode.TOKEN_USED


def test_a_device_whose_answer_was_lost_gets_the_same_answer(
    store: Store, token: NewToken, certificate: Certificate
) -> None:
    given = [certificate(token.client, use, 1) for use in USES]
    redeem_token(store, token.token, MINE, given, now=1.0)
    made_again = [certificate(token.client, use, 2) for use in USES]

    answer = redeem_token(store, token.token, MINE, made_again, now=2.0)

    assert sorted(answer, key=lambda one: one.key_use) == sorted(given, key=lambda one: one.key_use)


def test_a_token_lives_for_a_day(store: Store, token: NewToken) -> None:
    assert check_token(store, token.token, MINE, now=24 * 3600 - 1) == token.client
    assert refusal(store, token.token, now=24 * 3600) is RefusalCode.TOKEN_EXPIRED


@pytest.mark.parametrize("wrong", [bytes(16), b"", b"\xff" * 4096])
def test_an_unknown_token_is_refused(store: Store, token: NewToken, wrong: bytes) -> None:
    assert refusal(store, wrong) is RefusalCode.TOKEN_INVALID


def test_a_failed_enrolment_leaves_the_token_good(
    store: Store, token: NewToken, certificate: Certificate
) -> None:
    twice = certificate(token.client, "tls", 1)
    broken = StoredCertificate(twice.sha256, "tls", None, 1.0)  # type: ignore[arg-type] # on purpose
    with pytest.raises(IntegrityError):
        redeem_token(store, token.token, MINE, [broken], now=1.0)

    assert population(store) == []
    assert check_token(store, token.token, THEIRS, now=1.0) == token.client


def test_the_store_and_texts_hold_no_token(store: Store, token: NewToken, tmp_path: Path) -> None:
    store.close()

    for path in tmp_path.glob("store.sqlite*"):
        assert token.token not in path.read_bytes()
    assert token.token.hex() not in repr(token)
    assert repr(token.token) not in repr(token)


def test_a_person_who_enrols_again_keeps_name_and_history(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    again = renew_token(store, enrolled[0], SecureSource(), now=50.0)

    redeem_token(store, again.token, MINE, [certificate(enrolled[0], "tls", 2)], now=51.0)

    assert [client.name for client in list_clients(store)] == list(enrolled)
    assert check_caller(store, certificate(enrolled[0], "tls", 2).sha256, now=52.0) == enrolled[0]


def test_a_revoked_person_has_no_invite_left(
    store: Store, enrolled: tuple[str, ...], certificate: Certificate
) -> None:
    before = renew_token(store, enrolled[0], SecureSource(), now=50.0)

    revoke_client(store, enrolled[0], now=51.0)

    # A clock that was set back makes no token good again.
    for now in (52.0, 49.0):
        assert refusal(store, before.token, now=now) is RefusalCode.TOKEN_EXPIRED
    assert enrolled[0] not in population(store)
    # What the operator makes after that lets the person in again.
    after = renew_token(store, enrolled[0], SecureSource(), now=60.0)
    redeem_token(store, after.token, MINE, [certificate(enrolled[0], "tls", 2)], now=61.0)
    assert population(store) == list(enrolled)


def test_an_invite_that_nobody_used_can_be_withdrawn(store: Store, token: NewToken) -> None:
    for now in (1.0, 2.0):
        revoke_client(store, token.client, now=now)

    assert refusal(store, token.token) is RefusalCode.TOKEN_EXPIRED
    assert list_clients(store) == []
    # Its name stays taken: two invites never name one device.
    assert create_tokens(store, 1, SecureSource(), now=3.0)[0].client == "device-0002"


def test_tokens_are_made_for_somebody(store: Store) -> None:
    with pytest.raises(ValueError, match="count must be >= 1, got 0"):
        create_tokens(store, 0, SecureSource(), now=0.0)
    with pytest.raises(UnknownClientError, match="no client 'device-0009'"):
        renew_token(store, "device-0009", SecureSource(), now=0.0)
