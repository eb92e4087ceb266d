"""Flags of a command line, made from the settings that its handlers take.

A handler takes one frozen Struct. Its fields become flags: the name with dashes, the type, the
default, and as help what the docstring says under ``Attributes:``. The handler's name becomes the
subcommand's, its docstring's first line the help, and what follows the description. Only argparse
is loaded for it, so that help is instant.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from privacy.foundation.attribute_texts import attribute_texts
from privacy.foundation.completions import Completion
from protos.version import HELPER_VERSION, PLAN_VERSION, PROTOCOL_VERSION, VERSION


class Flag(NamedTuple):
    """Details of a flag that its field's type does not give, as metadata of ``Annotated``.

    Attributes:
        metavar: Name of the value in the help; None takes the field's, or the choices.
        positional: Whether the value is given by its place.
        parse: Reads the text and raises ``ArgumentTypeError``; None takes the field's type.
        choices: Lists the permitted values, where no ``Literal`` can.
        one_of: Name of a group of which at most one may be given, and one must be unless a member
            has a default other than None and False.
    """

    metavar: str | None = None
    positional: bool = False
    parse: Callable[[str], object] | None = None
    choices: Callable[[], Sequence[str]] | None = None
    one_of: str | None = None


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command that prints what it found.

    Attributes:
        json: Print JSON instead of text.
    """

    json: bool = False


_VERSIONS = (
    f"{VERSION} (protocol {PROTOCOL_VERSION}, plans {PLAN_VERSION}, helper {HELPER_VERSION})"
)

Handler = Callable[[Any], Any]  # Each takes settings of its own.


def command_line(
    program: str,
    description: str,
    handlers: Sequence[Handler],
    *,
    epilogs: Mapping[str, str] | None = None,
    allow_abbrev: bool = True,
) -> argparse.ArgumentParser:
    """Return a parser with one subcommand for each handler.

    Args:
        handlers: Functions of one Struct, as ``_rotate_keys`` for ``rotate-keys``.
        epilogs: Text below a subcommand's flags, by its name.
        allow_abbrev: Whether a subcommand takes the beginning of a flag for the flag.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--version", action="version", version=f"{program} {_VERSIONS}")
    parser.add_argument("--print-completion", action=Completion)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for handler in handlers:
        name = handler.__name__.strip("_").replace("_", "-")
        text = re.split(r"\n\n(?:Args|Raises|Returns):", inspect.cleandoc(handler.__doc__ or ""))[0]
        summary, _, description = text.partition("\n\n")
        epilog = (epilogs or {}).get(name)
        command = commands.add_parser(
            name,
            help=_as_help(summary),
            description=description or summary,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter
            if epilog
            else argparse.HelpFormatter,
            allow_abbrev=allow_abbrev,
        )
        kind = next(iter(handler.__annotations__.values()))
        _add_flags(command, kind)
        command.set_defaults(handler=handler, kind=kind)
    return parser


def read_arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Return what was typed: ``handler``, its ``settings``, and flags before the subcommand.

    Wrong usage exits with 2, and so does a ValueError of the Struct.
    """
    arguments = parser.parse_args(argv)
    given = {name: getattr(arguments, name) for name in arguments.kind.__struct_fields__}
    try:
        arguments.settings = arguments.kind(
            **{name: value for name, value in given.items() if value is not None}
        )
    except ValueError as error:
        parser.error(str(error))
    return arguments


def _add_flags(command: argparse.ArgumentParser, kind: type[msgspec.Struct]) -> None:
    fields = [(field, *_shape_of(field.type)) for field in msgspec.structs.fields(kind)]
    with_default = {flag.one_of for field, flag, _, _ in fields if _default_of(field)}
    groups = {
        name: command.add_mutually_exclusive_group(required=name not in with_default)
        for name in dict.fromkeys(flag.one_of for _, flag, _, _ in fields if flag.one_of)
    }
    texts = attribute_texts(kind)
    for field, flag, hint, is_list in fields:
        text = texts.get(field.name, "")
        default = _default_of(field)
        if default and "(default" not in text:
            text = f"{text.removesuffix('.')} (default: {default})"
        # None stands for what was not typed: the Struct has the defaults.
        options: dict[str, Any] = {"help": _as_help(text), "default": None}  # As argparse's.
        if hint is bool:
            options["action"] = "store_true"
        else:
            choices = get_args(hint) if get_origin(hint) is Literal else None
            options["type"] = flag.parse or (type(choices[0]) if choices else hint)
            options["choices"] = flag.choices() if flag.choices else choices
            options["metavar"] = flag.metavar
        if flag.positional:
            options["nargs"] = "+" if is_list else None if field.required else "?"
        else:
            options["required"] = field.required
            if is_list:
                options["action"] = "append"
        name = field.name if flag.positional else "--" + field.name.replace("_", "-")
        (groups[flag.one_of] if flag.one_of else command).add_argument(name, **options)


def _shape_of(hint: Any) -> tuple[Flag, Any, bool]:  # Any: typing has no type of its hints.
    """Return what is said of the flag, the type of one value, and whether there may be several."""
    flag, is_list = Flag(), False
    while (origin := get_origin(hint)) in (Annotated, Union, UnionType, list):
        if origin is Annotated:
            flag = next((said for said in hint.__metadata__ if isinstance(said, Flag)), flag)
        is_list = is_list or origin is list
        hint = next(part for part in get_args(hint) if part is not NoneType)
    return flag, hint, is_list


def _default_of(field: msgspec.structs.FieldInfo) -> str:
    """Return the default in words; nothing for none, None and False."""
    if any(field.default is nothing for nothing in (msgspec.NODEFAULT, None, False)):
        return ""
    parts = field.default if isinstance(field.default, tuple) else [field.default]
    return ",".join(map(str, parts))


def _as_help(text: str) -> str:
    """Return a sentence as help shows it: no capital, no full stop."""
    if not text[1:2].isupper():
        text = text[:1].lower() + text[1:]
    return " ".join(text.split()).removesuffix(".").replace("%", "%%")
