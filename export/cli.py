"""Run ``sotto-export``: make bundles and personal files from a release, check and try them.

Typed text goes nowhere but into the model, and comes out only as suggestions.
"""

import sys
from collections.abc import Mapping, Sequence

import msgspec

from export.commands.flags import (
    Asking,
    FromRelease,
    Graph,
    Keyboard,
    OfBundle,
    Personal,
    PluginGraph,
    Rounding,
    Speaking,
    Speech,
)
from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import command_line, read_arguments
from privacy.foundation.installation import InstallationError, check_installation
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError

Report = Mapping[str, object]


@command("sotto-export")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    parser = command_line(
        "sotto-export",
        "Make bundles and personal files from a release, check them and try them out.",
        (
            *(_keyboard, _image, _speech, _plugin, _personal, _people),
            *(_quantise, _verify, _inspect, _suggest, _speak),
        ),
    )
    arguments = read_arguments(parser, argv)
    try:
        check_installation()
        _print(arguments.handler(arguments.settings), as_json=arguments.settings.json)
    except ImportError as error:
        extra = "export,train" if error.name == "torch" else "export"
        print(f"sotto-export: {error.name} is missing; install sotto[{extra}]", file=sys.stderr)
        return 1
    except (ValueError, OSError, KeyFileError, CertificateError, InstallationError) as error:
        return failed("sotto-export", error)
    return 0


def _keyboard(asked: Keyboard) -> Report:
    """Make a keyboard's bundle from a release."""
    from export.commands.bundles import export_release
    from export.making.keyboard import KeyboardKind

    return export_release(asked, KeyboardKind(asked.language))


def _image(asked: Graph) -> Report:
    """Make a classifier's bundle from a release."""
    from export.commands.bundles import export_release
    from export.making.image import ClassifierKind

    return export_release(asked, ClassifierKind())


def _speech(asked: Speech) -> Report:
    """Make a voice's bundle from a release."""
    from export.commands.bundles import export_voice

    return export_voice(asked)


def _plugin(asked: PluginGraph) -> Report:
    """Write a plugin's model as one ONNX file."""
    from export.commands.bundles import export_plugin

    return export_plugin(asked)


def _personal(asked: Personal) -> Report:
    """Make the file of one client's own part.

    The coordinator makes it from a release. A device that keeps a part makes it by itself, without
    torch, from everyone's bundle and from what `sotto-client publish` wrote, which then need not
    leave the device.
    """
    from export.commands.people import export_personal

    return export_personal(asked)


def _people(asked: FromRelease) -> Report:
    """Make one file of everybody's embeddings, for a server that makes each person's part."""
    from export.commands.bundles import export_people_file

    return export_people_file(asked)


def _quantise(asked: Rounding) -> Report:
    """Round a bundle's weights to 8 bits."""
    from export.commands.bundles import quantise

    return quantise(asked)


def _verify(asked: OfBundle) -> Report:
    """Check digests, signature, weights and parity."""
    from export.commands.bundles import verify

    return verify(asked.bundle, authority=asked.authority)


def _inspect(asked: OfBundle) -> Report:
    """Say what a bundle or a personal file is."""
    from export.commands.bundles import inspect

    return inspect(asked.bundle, authority=asked.authority)


def _suggest(asked: Asking) -> Report:
    """Suggest the next word of a text."""
    from export.commands.bundles import suggest

    return suggest(asked, _text(asked.text))


def _speak(asked: Speaking) -> Report:
    """Say a text with a voice's bundle."""
    from export.commands.speech import speak

    return speak(asked, _text(asked.text))


def _text(given: str) -> str:
    # Other users of the machine can read a command line, but not standard input.
    return sys.stdin.read() if given == "-" else given


def _print(report: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    for name, value in report.items():
        if name == "suggestions" and isinstance(value, list):
            for suggestion in value:
                print(f"{suggestion['word']}\t{suggestion['probability']:.4f}")
        elif isinstance(value, Mapping):
            print(f"{name}: {', '.join(f'{key} {entry}' for key, entry in value.items())}")
        else:
            print(f"{name}: {value}")
