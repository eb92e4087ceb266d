"""Settings of each ``sotto-serve`` subcommand, whose flags ``privacy.foundation.flags`` makes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from privacy.foundation.flags import Flag, Printed

if TYPE_CHECKING:
    from export.serve.folder.folder import ServingFolder


class Fetching(Printed, frozen=True, kw_only=True):
    """A command that needs no serving folder.

    Attributes:
        json: Print one JSON object.
    """


class Page(Fetching, frozen=True, kw_only=True):
    """A page to write.

    Attributes:
        bundle: Bundle folder or .zip.
        out: New folder for the files.
        person: Whose keyboard it is: a file made by `sotto-export personal`.
        authority: The federation's authority.crt: refuse what its coordinator did not sign.
    """

    bundle: Annotated[Path, Flag("BUNDLE", positional=True)]
    out: Annotated[Path, Flag("FOLDER")]
    person: Annotated[Path | None, Flag("FILE")] = None
    authority: Annotated[Path | None, Flag("FILE")] = None


class InFolder(Fetching, frozen=True, kw_only=True):
    """A command on a serving folder.

    Attributes:
        folder: Serving folder.
    """

    folder: Annotated[Path, Flag("DIR", positional=True)]

    @property
    def serving(self) -> "ServingFolder":
        """Return the folder; numpy is loaded for it."""
        from export.serve.folder.folder import ServingFolder

        return ServingFolder(self.folder)


class Starting(InFolder, frozen=True, kw_only=True):
    """A serving folder to make.

    Attributes:
        authority: The federation's authority.crt: serve only what its coordinator signed.
        accept_unsigned: Serve any bundle, whoever made it.
    """

    authority: Annotated[Path | None, Flag("FILE", one_of="signing")] = None
    accept_unsigned: Annotated[bool, Flag(one_of="signing")] = False


class Promotion(InFolder, frozen=True, kw_only=True):
    """A bundle to serve.

    Attributes:
        bundle: Bundle folder or .zip; copied.
        held_out: UTF-8 text that no device trained on, to measure both versions on (default:
            believe the figures in the bundles).
        people: Where a part of the bundle is each person's own: a folder of personal files named
            CLIENT.zip, or the file of `sotto-export people`; may be given twice, once for each
            (default for each: the present version's, where they fit).
        metric: Figure to compare, which must say how good a model is (default: top3_recall for a
            keyboard, perplexity for a voice).
        largest_loss: How much worse it may be: in percentage points for a share such as recall, in
            per cent of the present value for any other figure such as perplexity.
    """

    bundle: Annotated[Path, Flag("BUNDLE", positional=True)]
    held_out: Annotated[Path | None, Flag("FILE")] = None
    people: Annotated[list[Path], Flag("PATH")] = msgspec.field(default_factory=list)
    metric: Annotated[str | None, Flag("NAME")] = None
    largest_loss: Annotated[float, Flag("LOSS")] = 0.5


class Additions(InFolder, frozen=True, kw_only=True):
    """People's files to add.

    Attributes:
        file: Personal file, .zip, as `sotto-export personal` makes it; or the one file of
            `sotto-export people`, which replaces the previous one.
    """

    file: Annotated[list[Path], Flag("FILE", positional=True)]


class Rollback(InFolder, frozen=True, kw_only=True):
    """A version to go back from.

    Attributes:
        reason: Kept in the history.
        voice: The voice before, not the keyboard.
    """

    reason: str = "asked for"
    voice: bool = False


class Clients(InFolder, frozen=True, kw_only=True):
    """Clients whose tokens change.

    Attributes:
        client: Name of a client.
    """

    client: Annotated[list[str], Flag("CLIENT", positional=True)]
