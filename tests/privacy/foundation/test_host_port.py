import pytest

from privacy.foundation.host_port import (
    MOST_ADDRESSES,
    checked_addresses,
    checked_host_port,
    host_of,
)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("fl.example.org:7441", "fl.example.org", 7441),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::1]:65535", "[::1]", 65535),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, host: str, port: int) -> None:
    assert checked_host_port("devices", address) == (host, port)


@pytest.mark.parametrize("address", ["fl.example.org", "::1:80", "a b:1", ":80", "a:65536", "a:-1"])
def test_what_is_no_address_is_refused_by_its_name(address: str) -> None:
    with pytest.raises(ValueError, match='devices must be "host:port" with a port up to 65535'):
        checked_host_port("devices", address)


def test_a_list_of_addresses_may_have_as_many_as_are_ever_tried() -> None:
    checked_addresses("coordinator", [f"[::{number}]:7441" for number in range(MOST_ADDRESSES)])

    assert [host_of("[::1]:7441"), host_of("fl.example.org:7441")] == ["::1", "fl.example.org"]


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ([], "coordinator must give 1 to 8 addresses, got 0"),
        (["a:1"] * 100_000, "coordinator must give 1 to 8 addresses, got 100000"),
        (["fl.example.org:0"], "a port from 1 to 65535, got 'fl.example.org:0'"),
        (["a:1", "b:65536"], "a port up to 65535, got 'b:65536'"),
        (["a:1", "b:1", "A:1"], "each address once, got 'A:1' twice"),
        (["a:1", "::1:7441"], 'must be "host:port"'),
    ],
)
def test_a_list_of_addresses_that_cannot_be_used_is_refused(
    addresses: list[str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        checked_addresses("coordinator", addresses)
