"""What a shell completes: every command's flags, choices and files, written out once for it.

A file that the shell reads answers at once; asking Python at every press of Tab would take as long
as starting it.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")


class Completion(argparse.Action):
    """A flag that prints a shell's completion of the whole command, and ends it."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        """Take what argparse gives for a flag."""
        super().__init__(
            option_strings,
            dest=argparse.SUPPRESS,
            choices=SHELLS,
            help="print what a shell reads to complete this command",
        )

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Print it; exits with 0, or with 1 where nothing is there to write it."""
        try:
            import shtab
        except ModuleNotFoundError:
            parser.exit(1, f"{parser.prog}: shtab is missing; install sotto[completions]\n")
        for action in _actions(parser):
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own
        print(shtab.complete(parser, str(values)))  # noqa: T201  # a command's answer
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # argparse lists them nowhere else
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from _actions(command)
