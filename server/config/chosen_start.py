"""Write the start of a run into the text of its settings, as ``sotto-server init --start`` says.

The text is the operator's, with comments and an order of its own: one line of it changes, and what
the settings then say is checked to differ in nothing else.
"""

import re
from pathlib import Path

import msgspec

from server.config.federation import ConfigError, parse_config
from server.config.shipped_starts import NO_START, SHIPPED_STARTS

_FIRST_TABLE = re.compile(r"^\[", re.MULTILINE)
_LINE = re.compile(
    r"""^start_from[ \t]*=[ \t]*(?:"[^"\n]*"|'[^'\n]*')[ \t]*(?:\#.*)?\n?""", re.MULTILINE
)


def with_start(settings: str, start: str | None, source: str) -> str:
    """Return settings that start from ``start``; for None, the settings as they are.

    ``start`` is ``none``, a shipped start's name or a path, which is taken from the working folder.
    ``source`` names the settings in error messages.

    Raises:
        ConfigError: If the settings cannot be used, or are written in a way that this cannot change
            safely.
    """
    if start is None:
        return settings
    before = parse_config(settings, source)
    chosen = None if start == NO_START else start
    if chosen is not None and chosen not in SHIPPED_STARTS:
        chosen = str(Path(chosen).absolute())
    line = "" if chosen is None else f"start_from = {msgspec.json.encode(chosen).decode()}\n"
    text = _replaced(settings, line)
    try:
        changed = parse_config(text, source) == msgspec.structs.replace(before, start_from=chosen)
    except ConfigError:
        changed = False
    if not changed:
        raise ConfigError(
            f"{source}: start_from is written in a way that cannot be replaced; write "
            f"{line.strip() or 'no start_from'} above the first table yourself, and leave --start "
            "out"
        )
    return text


def _replaced(settings: str, line: str) -> str:
    table = _FIRST_TABLE.search(settings)
    end = len(settings) if table is None else table.start()
    head, rest = settings[:end], settings[end:]
    if _LINE.search(head):
        return _LINE.sub(lambda _: line, head) + rest
    return f"{head.rstrip()}\n{line}\n{rest}" if line else settings
