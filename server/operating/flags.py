"""Settings of ``sotto-server``'s subcommands, as their flags give them."""

from pathlib import Path
from typing import Annotated

import msgspec

from privacy.foundation.flags import Flag
from privacy.foundation.host_port import checked_host_port
from privacy.foundation.whole_number_flags import at_least_one
from privacy.identities.keys import read_passphrase
from server.config.federation import preset_names


class OnFolder(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command on a federation.

    Attributes:
        folder: The federation's folder.
    """

    folder: Annotated[Path, Flag("DIR", positional=True)]


class Running(OnFolder, frozen=True, kw_only=True):
    """A federation to coordinate.

    Attributes:
        devices: Listen here for devices, whatever [listen] says; for one of several machines.
        enrolment: The same for enrolment.
    """

    devices: Annotated[str | None, Flag("HOST:PORT")] = None
    enrolment: Annotated[str | None, Flag("HOST:PORT")] = None

    def __post_init__(self) -> None:
        for name in ("devices", "enrolment"):
            if (address := getattr(self, name)) is not None:
                checked_host_port(f"--{name}", address)


class Hosted(OnFolder, frozen=True, kw_only=True):
    """A federation and where devices find it.

    Attributes:
        hostname: Name or address under which devices reach this machine; may be repeated, for
            machines that stand by at the same ports: devices try them in this order.
    """

    hostname: Annotated[list[str], Flag("HOST")] = []


class Founding(Hosted, frozen=True, kw_only=True):
    """A federation to found.

    Attributes:
        preset: Settings that ship with sotto; with --language, keyboard if nothing else is said.
        config: Settings of your own, TOML, in place of a preset.
        language: Language of the keyboard, as de, or several with commas between: its word list is
            made here and takes the place of the settings' own. Needs sotto[languages].
        start: Model that the run starts from, in place of the settings' own: none (drawn from the
            seed), the name of one that ships with sotto (english), or a release's folder or packed
            file.
        passphrase_file: Owner-only file whose first line encrypts the authority's key.
    """

    preset: Annotated[str | None, Flag(choices=preset_names)] = None
    config: Annotated[Path | None, Flag("FILE")] = None
    language: Annotated[str | None, Flag("TAG[,TAG]")] = None
    start: Annotated[str | None, Flag("none|PATH|NAME")] = None
    passphrase_file: Annotated[Path | None, Flag("FILE")] = None

    def __post_init__(self) -> None:
        if self.preset is not None and self.config is not None:
            raise ValueError("argument --config: not allowed with argument --preset")
        if self.preset is None and self.config is None and self.language is None:
            raise ValueError("one of the arguments --preset --config is required")


class WithAuthority(OnFolder, frozen=True, kw_only=True):
    """A federation whose authority's key is at hand.

    Attributes:
        authority_key: The authority's key (default: DIR/authority/authority.key).
        passphrase_file: Owner-only file whose first line opens that key.
    """

    authority_key: Annotated[Path | None, Flag("FILE")] = None
    passphrase_file: Annotated[Path | None, Flag("FILE")] = None


class HelperAdmission(WithAuthority, frozen=True, kw_only=True):
    """A helper to certify.

    Attributes:
        request: The request that `sotto-helper init` or `renew` wrote.
    """

    request: Annotated[Path, Flag("REQUEST", positional=True)]


class Succeeding(WithAuthority, frozen=True, kw_only=True):
    """An authority to replace.

    Attributes:
        authority_key: The authority's key until now (default: DIR/authority/authority.key).
        passphrase_file: Owner-only file whose first line opens that key.
        new_passphrase_file: Owner-only file whose first line encrypts the new authority's key.
    """

    new_passphrase_file: Annotated[Path | None, Flag("FILE")] = None


class Invites(OnFolder, frozen=True, kw_only=True):
    """Invites to write.

    Attributes:
        count: New devices.
        client: A known device that enrols again.
        out: Folder for the invites (default: DIR/invites).
    """

    count: Annotated[int, Flag(parse=at_least_one, one_of="whom")] = 1
    client: Annotated[str | None, Flag("NAME", one_of="whom")] = None
    out: Annotated[Path | None, Flag("DIR")] = None


class Reported(OnFolder, frozen=True, kw_only=True):
    """A report of a federation.

    Attributes:
        json: Print JSON instead of a table.
    """

    json: bool = False


class Asked(Reported, frozen=True, kw_only=True):
    """A question where the run stands.

    Attributes:
        json: Print JSON instead of a table.
        leads: Print nothing; exit with 0 if the coordinator of this machine leads, 3 if it stands
            by, 1 if none runs here.
    """

    leads: bool = False


class Rounds(Reported, frozen=True, kw_only=True):
    """Rounds to list.

    Attributes:
        first_round: Begin here.
    """

    first_round: Annotated[int, Flag("N", parse=at_least_one)] = 1


class OneClient(OnFolder, frozen=True, kw_only=True):
    """One device.

    Attributes:
        client: Device, enrolled or invited, as device-0001.
    """

    client: Annotated[str, Flag("NAME", positional=True)]


class Backup(OnFolder, frozen=True, kw_only=True):
    """An archive to write.

    Attributes:
        out: Archive to write.
    """

    out: Annotated[Path, Flag("FILE")]


class Restoring(msgspec.Struct, frozen=True, kw_only=True):
    """An archive to unpack.

    Attributes:
        archive: Archive made by backup.
        folder: The federation's folder.
    """

    archive: Annotated[Path, Flag("FILE", positional=True)]
    folder: Annotated[Path, Flag("DIR", positional=True)]


def passphrase_in(path: Path | None) -> bytes | None:
    """Return the first line of a file that was named, read now; KeyFileError if it is empty."""
    return None if path is None else read_passphrase(path)
