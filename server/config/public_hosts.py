"""Write the names of a coordinator's machines into the text of its settings.

The text is the operator's, with comments and an order of its own: one line of it changes, and what
the settings then say is checked to differ in nothing else.
"""

import re
from collections.abc import Sequence

import msgspec

from server.config.federation import ConfigError, parse_config
from server.config.listen import checked_hosts

_TABLE = re.compile(r"^\[listen\][ \t]*(?:#.*)?\n", re.MULTILINE)
_NEXT_TABLE = re.compile(r"^\[", re.MULTILINE)
_LINE = re.compile(
    r"""^public_host[ \t]*=[ \t]*(?:"[^"\n]*"|'[^'\n]*'|\[[^\]]*\])[ \t]*(?:#.*)?\n""", re.MULTILINE
)


def has_listen_table(settings: str) -> bool:
    """Return whether the text has a table ``[listen]`` on a line of its own."""
    return _TABLE.search(settings) is not None


def with_public_hosts(settings: str, hosts: Sequence[str], source: str) -> str:
    """Return settings whose ``public_host`` is these hosts; without any, the settings as they are.

    ``source`` names the settings in error messages.

    Raises:
        ConfigError: If the settings cannot be used, or are written in a way that this cannot change
            safely.
        ValueError: If a host is no name or address, or one is given twice.
    """
    if not hosts:
        return settings
    checked_hosts("--hostname", hosts)
    before = parse_config(settings, source)
    value = msgspec.json.encode(hosts[0] if len(hosts) == 1 else hosts).decode()
    text = _replaced(settings, f"public_host = {value}\n")
    public_host = hosts[0] if len(hosts) == 1 else tuple(hosts)
    listen = msgspec.structs.replace(before.listen, public_host=public_host)
    try:
        changed = parse_config(text, source) == msgspec.structs.replace(before, listen=listen)
    except ConfigError:
        changed = False
    if not changed:
        raise ConfigError(
            f"{source}: listen.public_host is written in a way that cannot be replaced; write "
            f"public_host = {value} below [listen] yourself, and leave --hostname out"
        )
    return text


def _replaced(settings: str, line: str) -> str:
    found = _TABLE.search(settings)
    if found is None:
        return f"{settings.rstrip()}\n\n[listen]\n{line}"
    following = _NEXT_TABLE.search(settings, found.end())
    end = len(settings) if following is None else following.start()
    body = settings[found.end() : end]
    # A line that is not there yet is put first.
    body = _LINE.sub(lambda _: line, body) if _LINE.search(body) else line + body
    return settings[: found.end()] + body + settings[end:]
