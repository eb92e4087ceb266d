"""One line of an operator's settings changes, and nothing else in them."""

import pytest

from server.config.federation import ConfigError, parse_config, preset_text
from server.config.public_hosts import with_public_hosts

# The shipped file names a table [listen] of its own, or none.
SETTINGS = preset_text("keyboard-tiny")
LISTEN = '\n[listen]  # doors\nenrolment = "0.0.0.0:1000"\n{}devices = "0.0.0.0:1001"\n[store]\n'
BOTH = 'public_host = ["a.test","::1"]\n'


@pytest.mark.parametrize(
    "line",
    [
        "",
        'public_host = "old.test"\n',
        "public_host='old.test'   # the old one\n",
        'public_host = [\n  "old.test",  # the old one\n  "older.test",\n]\n',
    ],
    ids=["none", "text", "commented", "list"],
)
def test_hosts_are_written_in_place(line: str) -> None:
    text = with_public_hosts(SETTINGS + LISTEN.format(line), ["a.test", "::1"], "mine")

    assert text.count("public_host") == 1
    assert text.replace(BOTH, "") == SETTINGS + LISTEN.format("")
    assert parse_config(text, "mine").listen.public_host == ("a.test", "::1")


def test_one_host_is_written_as_it_always_was_and_none_changes_nothing() -> None:
    text = with_public_hosts(SETTINGS, ["a.test"], "mine")

    assert text == f'{SETTINGS.rstrip()}\n\n[listen]\npublic_host = "a.test"\n'
    assert with_public_hosts(text, [], "mine") == text


@pytest.mark.parametrize(
    "listen",
    [
        '\n[listen]\n"public_host" = "old.test"\n',
        "\n[ listen ]\n",
        '\n[listen]\npublic_host = """old.test"""\n',
    ],
)
def test_settings_that_are_written_otherwise_are_left_to_the_operator(listen: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_public_hosts(SETTINGS + listen, ["a.test", "b.test"], "mine.toml")

    assert str(refused.value) == (
        "mine.toml: listen.public_host is written in a way that cannot be replaced; write "
        'public_host = ["a.test","b.test"] below [listen] yourself, and leave --hostname out'
    )
