import pytest

from server.config.listen import ListenSettings

EVERYWHERE = "0.0.0.0:7441"


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        (ListenSettings(devices=EVERYWHERE, public_host="sotto.example"), ("sotto.example",)),
        (ListenSettings(devices=EVERYWHERE, public_host=("b", "::1", "a")), ("b", "::1", "a")),
        (ListenSettings(devices="localhost:7441"), ("localhost",)),
        (ListenSettings(devices="[::1]:7441"), ("::1",)),
    ],
)
def test_the_advertised_hosts_are_the_public_ones_or_that_of_the_listener(
    settings: ListenSettings, hosts: tuple[str, ...]
) -> None:
    assert settings.advertised_hosts == hosts


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ((), "public_host must give 1 to 8 addresses, got 0"),
        (tuple(f"m{number}" for number in range(9)), "1 to 8 addresses, got 9"),
        (("a.example", "A.example"), "each address once"),
        (("a.example", "b.example:7441"), "without a port, got 'b.example:7441'"),
        (("a.example", "[::1]"), r"without a port, got '\[::1\]'"),
        (("a.example", "https://b.example"), "without a port"),
        (("a.example", ""), "without a port, got ''"),
    ],
)
def test_hosts_that_no_device_could_find_are_refused(hosts: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ListenSettings(public_host=hosts)


def test_two_free_ports_may_be_asked_for() -> None:
    settings = ListenSettings(enrolment="127.0.0.1:0", devices="127.0.0.1:0")

    assert settings.devices == settings.enrolment


@pytest.mark.parametrize("address", ["", "localhost", ":7441", "a:b", "::1:7441", "a b:1", "a:1x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        ListenSettings(enrolment=address)


def test_figures_are_shown_nowhere_unless_asked_for() -> None:
    settings = ListenSettings()

    assert (settings.metrics, settings.shows_metrics_elsewhere) == (None, False)


@pytest.mark.parametrize(
    ("address", "elsewhere"),
    [
        ("127.0.0.1:7442", False),
        ("localhost:7442", False),
        ("[::1]:0", False),
        ("0.0.0.0:7442", True),
        ("[::]:7442", True),
        ("sotto.example:7442", True),
    ],
)
def test_figures_stay_on_this_machine_on_loopback_alone(address: str, elsewhere: bool) -> None:
    assert ListenSettings(metrics=address).shows_metrics_elsewhere is elsewhere


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("7442", 'metrics must be "host:port"'),
        ("127.0.0.1:70000", "a port up to 65535"),
        ("127.0.0.1:7441", "metrics must have an address of its own"),
        ("127.0.0.1:7440", "other than enrolment's and devices', got '127.0.0.1:7440'"),
    ],
)
def test_an_address_at_which_no_figures_can_be_shown_is_refused(address: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ListenSettings(metrics=address)
