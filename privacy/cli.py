"""Run ``sotto-privacy``: what concerns keys and budgets, and needs neither server nor device."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from privacy.identity import Identity
from privacy.installation import InstallationError, check_installation
from privacy.keys import RSA_BITS, KeyFileError, read_passphrase


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    arguments = _parser().parse_args(argv)
    try:
        check_installation()
        _make_keys(arguments.out, arguments.bits, arguments.passphrase_file)
    except (InstallationError, KeyFileError, OSError) as error:
        print(f"sotto-privacy: {error}", file=sys.stderr)
        return 1
    return 0


def _make_keys(folder: Path, bits: int, passphrase_file: Path | None) -> None:
    """Make pending keys in a new identity folder and say where they are."""
    if folder.exists() and any(folder.iterdir()):
        raise KeyFileError(f"{folder} must be empty or absent: keys in use are never overwritten")
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    Identity.create_requests(folder, "device", bits=bits, passphrase=passphrase)
    kept = "plain" if passphrase is None else "encrypted"
    print(f"TLS (P-256), wrapping and signing (RSA-{bits}) keys, {kept}: {folder / 'pending'}")
    print("An enrolment into this identity folder uses them.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sotto-privacy", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    keygen = commands.add_parser(
        "keygen",
        help="make a device's three keys ahead of its enrolment",
        description="Make the TLS, wrapping and signing keys of one party in a folder that only "
        "its owner can read. An enrolment into that folder uses them instead of new ones.",
        allow_abbrev=False,
    )
    keygen.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="new identity folder"
    )
    keygen.add_argument(
        "--bits",
        type=int,
        choices=RSA_BITS,
        default=RSA_BITS[0],
        help="size of the wrapping and signing keys in bits (default: %(default)s)",
    )
    keygen.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="owner-only file whose first line encrypts the key files",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
