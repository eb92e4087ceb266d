"""Find the model of one person: the shared one, or that with the person's own tensors.

A personal file lies beside the version it was made for. It is loaded when its person first asks.
Without one, the model is made of the person's embedding in everybody's file. All share one session,
and the models longest unused go when there are too many. A file that is replaced or removed counts
at once, but if the version's whole folder is gone, people in memory stay there.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod

from export.people.people_file import MadePeople
from export.people.personal_file import load_file_of
from export.runtime.word_graph import NextWordGraph
from export.serve.folder.file_stamps import FileStamp, stamp_of
from export.serve.folder.folder import ServingFolder
from export.serve.loaded.keyboard_version import ServedModel
from export.serve.loaded.metrics import ServingMetrics

_FLOAT_BYTES = 4


class NoPersonalModelError(Exception):
    """Raised when a person has no file on a version that needs one; the text says what helps."""

    def __init__(self) -> None:
        super().__init__(
            "this client has no model of its own on this version; add one with `sotto-serve person`"
        )


@dataclass(frozen=True)
class _Held:
    """One person's model and the file or embeddings it came from."""

    model: NextWordGraph
    source: FileStamp | MadePeople
    size_bytes: int


class OwnModels:
    """Everybody's models, loaded as they are needed; safe to call from many threads.

    ``on_let_go`` is called with a client and a version when their model is held no more.
    """

    def __init__(
        self, folder: ServingFolder, metrics: ServingMetrics, *, largest_bytes: int
    ) -> None:
        """Begin with nobody's; at most ``largest_bytes`` of tensors, or one person's, are held."""
        self._folder = folder
        self._metrics = metrics
        self._largest_bytes = largest_bytes
        self._held: OrderedDict[tuple[str, str], _Held] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()
        self.on_let_go: Callable[[str, str], None] = _nobody_asked

    def load(self, client: str, served: ServedModel) -> NextWordGraph:
        """Return the client's own model on one version, the same object until its file changes.

        Errors as of ``People.model_of``.
        """
        if served.manifest.personal is None:
            return served.graph
        key = (client, served.version)
        source = self._source(client, served)
        if source is None:
            self._drop(key)
            raise NoPersonalModelError
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.source == source:
                self._held.move_to_end(key)
                return held.model
        if isinstance(source, MadePeople):
            model = source.graph_of(client)
        else:
            model = load_person(self._folder, served, client)
        shapes = served.graph.personal_shapes.values()
        size_bytes = sum(_FLOAT_BYTES * prod(shape) for shape in shapes)
        self._hold(key, _Held(model, source, size_bytes))
        return model

    def _source(self, client: str, served: ServedModel) -> FileStamp | MadePeople | None:
        """Return the origin of a client's model: a file of their own, or everybody's."""
        stamp = stamp_of(self._folder.person(served.version, client))
        if stamp is not None:
            return stamp
        held = self._held.get((client, served.version))
        is_file = held is not None and not isinstance(held.source, MadePeople)
        if held is not None and is_file and not self._folder.people(served.version).is_dir():
            return held.source  # The version went from the disk, which takes no model away.
        made = served.made
        return made if made is not None and client in made else None

    def _drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            gone = [key] if key in self._held else []
            self._let_go(gone)
        self._tell(gone)

    def forget_all_but(self, versions: list[str]) -> None:
        """Drop what was held for versions that are no longer served."""
        with self._lock:
            gone = [key for key in self._held if key[1] not in versions]
            self._let_go(gone)
        self._tell(gone)

    def forget_clients_but(self, clients: Collection[str]) -> None:
        """Drop what was held for anybody else."""
        with self._lock:
            gone = [key for key in self._held if key[0] not in clients]
            self._let_go(gone)
        self._tell(gone)

    def _hold(self, key: tuple[str, str], held: _Held) -> None:
        gone: list[tuple[str, str]] = []
        with self._lock:
            replaced = self._held.pop(key, None)
            self._held_bytes += held.size_bytes - (replaced.size_bytes if replaced else 0)
            self._held[key] = held
            while self._held_bytes > self._largest_bytes and len(self._held) > 1:
                gone.append(next(iter(self._held)))
                self._let_go(gone[-1:])
            self._metrics.personal_loads.inc()
            self._metrics.personal_models.set(len(self._held))
        self._tell(gone)

    def _let_go(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            self._held_bytes -= self._held.pop(key).size_bytes
        self._metrics.personal_models.set(len(self._held))

    def _tell(self, gone: list[tuple[str, str]]) -> None:
        """Report the models let go, outside the lock, since the listener has one of its own."""
        for client, version in gone:
            self.on_let_go(client, version)


def _nobody_asked(_client: str, _version: str) -> None:
    pass


def load_person(folder: ServingFolder, served: ServedModel, client: str) -> NextWordGraph:
    """Load one person's file onto a version.

    Raise BundleError if it is corrupt, unsigned though signatures are required, another person's,
    or
    not of this version's run, method and schema.
    """
    path = folder.person(served.version, client)
    own = load_file_of(client, path, authority=folder.authority_certificate())
    return own.on(served.graph, served.manifest)
