"""An operator reads in a line whether the helper is there, and when it has to be renewed."""

import asyncio
import dataclasses
import socket
import time

import pytest

from privacy.identities.certificates import CertifiedKey
from server.uplink import helper_reach
from server.uplink.helper_reach import helper_told
from tests.server.sealing import make_parties

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> CertifiedKey:
    """Return a wrapping key of 90 days, which is due for renewal after 60."""
    parties = make_parties(tmp_path_factory.mktemp("parties"), ())
    return dataclasses.replace(parties.coordinator.wrapping.certified, role="helper")


def test_a_helper_that_listens_answers_and_another_cannot_be_reached(
    key: CertifiedKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_reach, "_CONNECT_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert asyncio.run(helper_told(address, key)) == f"{address} answers"

    assert "cannot be reached" in asyncio.run(helper_told(address, key))


def test_certificates_that_end_are_told_in_time(key: CertifiedKey) -> None:
    for days, is_told in ((59, False), (61, True)):
        told = asyncio.run(helper_told("127.0.0.1:1", key, now=time.time() + days * DAY_S))
        assert ("sotto-helper renew" in told) is is_told
