"""Read the NUS SMS corpus as it is published: one XML file, often in a zip archive.

A message has its ``text``, a ``source`` with the sender's ``userID`` (in the version of 2004, only
``srcNumber``) and a ``messageProfile`` with the time sent. The parser is expat. Entities, with
which a short file can grow without bound or fetch another, are refused, and sizes are limited.

References:
    Chen and Kan, "Creating a live, public short message service corpus", Language Resources and
        Evaluation 47, 2013.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn
from xml.parsers import expat

from edge_client.datasets.text_set import DatasetError
from models.vector.archives import ZIP_DAMAGE, open_zip

# The last version of the whole English corpus has 44 MB.
LARGEST_BYTES = 256 << 20
LONGEST_VALUE = 1 << 16
_PIECE_BYTES = 1 << 20
_DEEPEST = 16

_MESSAGE = ("smsCorpus", "message")
_TEXT = (*_MESSAGE, "text")
_PROFILE = (*_MESSAGE, "messageProfile")
_SENDERS = (
    (*_MESSAGE, "source", "userProfile", "userID"),
    (*_MESSAGE, "source", "srcNumber"),
    (*_MESSAGE, "source", "srcID"),
)


@dataclass(frozen=True)
class XmlMessage:
    """One message, with its sender and the time sent as the corpus writes it."""

    user: str
    text: str
    sent: str


def read_messages(path: Path) -> list[XmlMessage]:
    """Return the messages of an ``.xml`` file, or of the one in a ``.zip``, in the file's order.

    Raises:
        DatasetError: If the file is missing, damaged, too large, declares entities, or is another
            kind of XML; names the file and the line, never the text.
    """
    reader = _Reader(path)
    try:
        with _opened(path) as file:
            for piece in _pieces(file, path):
                reader.feed(piece)
        reader.feed(b"", last=True)
    except expat.ExpatError as error:
        raise DatasetError(
            f"{path}, line {error.lineno}: {expat.ErrorString(error.code)}"
        ) from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    except ZIP_DAMAGE as error:
        raise DatasetError(f"{path} is damaged: {error}") from None
    if not reader.messages:
        raise DatasetError(f"{path} must be an smsCorpus with messages in it, got none")
    return reader.messages


class _Reader:
    """The messages collected while expat goes over the file."""

    def __init__(self, path: Path) -> None:
        self.messages: list[XmlMessage] = []
        self._path = path
        self._place: list[str] = []
        self._values: dict[tuple[str, ...], str] = {}
        self._sent = ""
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.EntityDeclHandler = self._refuse_entity
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters

    def feed(self, piece: bytes, *, last: bool = False) -> None:
        """Parse the next bytes of the file."""
        try:
            self._parser.Parse(piece, last)
        except DatasetError:
            raise
        except (LookupError, ValueError):
            # An encoding that Python has not, or one of several bytes a letter.
            raise self._error(
                "declares an encoding that cannot be read; save it as UTF-8"
            ) from None

    # object: what an entity is does not matter.
    def _refuse_entity(self, *_: object) -> NoReturn:
        raise self._error("declares an entity; the corpus has none, so this is another file")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._place) == _DEEPEST:
            raise self._error(f"must be at most {_DEEPEST} levels deep")
        self._place.append(name)
        place = tuple(self._place)
        if len(place) == 1 and name != _MESSAGE[0]:
            raise self._error(f"must begin with {_MESSAGE[0]}")
        if place == _MESSAGE:
            self._values, self._sent = {}, ""
        elif place == _PROFILE:
            self._sent = attributes.get("time", "")

    def _characters(self, data: str) -> None:
        place = tuple(self._place)
        if place == _TEXT or place in _SENDERS:
            value = self._values.get(place, "") + data
            if len(value) > LONGEST_VALUE:
                raise self._error(f"a message must have at most {LONGEST_VALUE} characters")
            self._values[place] = value

    def _end(self, _name: str) -> None:
        place = tuple(self._place)
        self._place.pop()
        if place != _MESSAGE:
            return
        user = next((self._values[sender] for sender in _SENDERS if self._values.get(sender)), None)
        if user is None:
            raise self._error("a message must name its sender")
        self.messages.append(XmlMessage(user.strip(), self._values.get(_TEXT, ""), self._sent))

    def _error(self, rule: str) -> DatasetError:
        return DatasetError(f"{self._path}, line {self._parser.CurrentLineNumber}: {rule}")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the XML, in its archive if it lies in one."""
    if path.suffix != ".zip":
        with path.open("rb") as file:
            yield file
        return
    with open_zip(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".xml")]
        if len(names) != 1:
            raise DatasetError(f"{path} must hold one .xml file, got {len(names)}")
        with archive.open(names[0]) as member:
            yield member


def _pieces(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield a file's content, counted as it comes: what an archive says of its size is a claim."""
    read = 0
    while piece := file.read(_PIECE_BYTES):
        read += len(piece)
        if read > LARGEST_BYTES:
            raise DatasetError(f"{path} must hold at most {LARGEST_BYTES >> 20} MiB of XML")
        yield piece
