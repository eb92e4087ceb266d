"""The command lines of the pods and of the README, read by the programs' own parsers."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from unittest.mock import patch

import export.cli
import export.serve.cli
import server.cli
import server.helper.cli
from deploy.kubernetes.check.manifests import Body, Manifest, containers
from privacy.foundation.flags import read_arguments

PROGRAMS: dict[str, ModuleType] = {
    "sotto-export": export.cli,
    "sotto-helper": server.helper.cli,
    "sotto-serve": export.serve.cli,
    "sotto-server": server.cli,
}
# Within a shell's line, a command ends at what joins it to the next. A namespace is no command.
_CALL = re.compile(r"(?<!-n )\b(sotto-(?:export|helper|serve|server)) ([a-z][^|&;<>}'\n]*)")
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


class _Parsed(Exception):  # noqa: N818 (no error: it ends a command that was only to be read)
    """Raised instead of running what was read."""


def broken(manifests: Sequence[Manifest], readme: str) -> Iterator[str]:
    """Yield a line for each command that its program would not take."""
    for where, program, arguments in _calls(manifests, readme):
        if said := refusal(program, tuple(arguments)):
            yield f"{where}: {program} {shlex.join(arguments)}: {said}"


@lru_cache
def refusal(program: str, arguments: tuple[str, ...]) -> str:
    """Return what a program says against its arguments, or nothing."""

    def stop(parser: object, argv: Sequence[str] | None = None) -> None:
        read_arguments(parser, argv)  # type: ignore[arg-type]
        raise _Parsed

    module = PROGRAMS[program]
    main: Callable[[Sequence[str]], int] = module.main
    said = io.StringIO()
    with patch.object(module, "read_arguments", stop), contextlib.redirect_stderr(said):
        try:
            main(arguments)
        except _Parsed:
            return ""
        except SystemExit:
            return said.getvalue().strip().rpartition("\n")[2]
    return "was not read"


def _calls(manifests: Sequence[Manifest], readme: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    for manifest in manifests:
        for container in containers(manifest.pod) if manifest.pod else ():
            # An image's entry point is its own program.
            if "args" in container:
                yield manifest.where, container["image"], container["args"]
            for line in _shell_lines(container):
                yield from ((manifest.where, *call) for call in _within(line))
    for block in _BLOCK.findall(readme):
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            yield from (("README.md", *call) for call in _within(line))


def _shell_lines(container: Body) -> Iterator[str]:
    yield " ".join(container.get("command", ()))
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        yield " ".join(container.get(probe, {}).get("exec", {}).get("command", ()))


def _within(line: str) -> Iterator[tuple[str, list[str]]]:
    return ((found[1], shlex.split(found[2])) for found in _CALL.finditer(line))
