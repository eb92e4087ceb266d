import pytest

from server.config.listen import ListenSettings


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        (ListenSettings(devices="0.0.0.0:7441", public_host="sotto.example"), "sotto.example"),
        (ListenSettings(devices="localhost:7441"), "localhost"),
        (ListenSettings(devices="[::1]:7441"), "::1"),
    ],
)
def test_the_advertised_host_is_the_public_one_or_that_of_the_listener(
    settings: ListenSettings, host: str
) -> None:
    assert settings.advertised_host == host


def test_two_free_ports_may_be_asked_for() -> None:
    settings = ListenSettings(enrolment="127.0.0.1:0", devices="127.0.0.1:0")

    assert settings.devices == settings.enrolment


@pytest.mark.parametrize("address", ["", "localhost", ":7441", "a:b", "::1:7441", "a b:1", "a:1x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        ListenSettings(enrolment=address)
