"""The name by which a caller is counted: its address, or its IPv6 network."""

import pytest

from privacy.foundation.callers import network_of


@pytest.mark.parametrize(
    ("peer", "counted_as"),
    [
        ("ipv4:192.0.2.7:40001", "192.0.2.7"),
        ("ipv6:%5B2001:db8:1:2:aaaa::5%5D:40001", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:ffff:1:2:3]:1", "2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:3::5%5D:40001", "2001:db8:1:3::/64"),
        ("ipv6:%5B::ffff:192.0.2.7%5D:40001", "192.0.2.7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:9", "fe80::/64"),
        ("unix:", "unix:"),
    ],
)
def test_a_port_does_not_count_nor_what_a_household_chooses(peer: str, counted_as: str) -> None:
    assert network_of(peer) == counted_as
