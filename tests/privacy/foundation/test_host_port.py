import pytest

from privacy.foundation.host_port import checked_host_port


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
