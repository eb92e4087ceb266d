"""Write the page and one keyboard as plain files, for a device that serves itself.

Any server of files does, over https or on the device alone: the page needs no route and no token.
The folder holds a person's model, so it is the owner's alone, as a bundle is.
"""

from pathlib import Path

import msgspec

from export.blocked.blocked_words import blocked_words
from export.bundles.files import check_target, write_folder
from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.bundles.manifest import MODEL_FILE, VOCABULARY_FILE
from export.page.described import PERSONAL_FILE, describe, personal_file
from export.page.onnxruntime_web import PageError, runtime_files
from export.page.page_files import Source, page_files
from export.people.personal_file import load_personal_file
from export.releases.release import read_authority
from export.runtime.personal_ranking import rankings
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex

_SOURCE = Source(description="keyboard/keyboard.json", files="keyboard", needs_token=False)
_VERSION = "model"


def write_site(
    bundle: Path, target: Path, *, person: Path | None, authority: Path | None
) -> dict[str, object]:
    """Write the page's folder, whole or not at all; report the folder, whose keyboard, and bytes.

    Args:
        target: A new folder.
        person: Personal file, if a part of the model is each person's own.
        authority: ``authority.crt``; None accepts what nobody signed.

    Raises:
        PageError: If onnxruntime was not fetched yet.
        ValueError: If the bundle or the personal file is refused, or does not fit the other.
    """
    check_target(target)
    runtime = runtime_files()
    if not runtime:
        raise PageError("onnxruntime-web is not here yet; run `sotto-serve fetch`, which needs npm")
    certificate = None if authority is None else read_authority(authority)
    loaded = load_bundle(bundle, authority=certificate)
    graph, client = _graph_of(loaded, person, certificate)
    files = {name: file.content for name, file in page_files(_SOURCE, runtime).items()}
    files |= _keyboard(loaded, graph, client)
    write_folder(target, files)
    return {"page": str(target), "client": client, "bytes": sum(map(len, files.values()))}


def _graph_of(
    bundle: Bundle, person: Path | None, certificate: bytes | None
) -> tuple[NextWordGraph, str]:
    """Return the graph with the person's tensors, and whose keyboard it then is."""
    graph = NextWordGraph(bundle.graph)
    if person is not None:
        own = load_personal_file(person, authority=certificate)
        return own.on(graph, bundle.manifest), own.manifest.client
    if bundle.manifest.personal is not None:
        raise PageError("a part of this model is each person's own; give their file with --person")
    return graph, bundle.manifest.client or "everyone"


def _keyboard(bundle: Bundle, graph: NextWordGraph, client: str) -> dict[str, bytes]:
    index = WordIndex(bundle.vocabulary)
    ranking, open_ranking = rankings(
        bundle.vocabulary, index, shipped=blocked_words(bundle.manifest.languages)
    )
    own_part = personal_file(graph) if graph.personal_inputs else None
    version = describe(
        _VERSION,
        bundle.manifest,
        graph=graph,
        ranking=ranking,
        open_ranking=open_ranking,
        own_part=own_part,
    )
    place = f"{_SOURCE.files}/{_VERSION}"
    files = {
        _SOURCE.description: msgspec.json.encode(
            {"client": client, "versions": [version], "voice": None}
        ),
        f"{place}/{MODEL_FILE}": bundle.graph,
        f"{place}/{VOCABULARY_FILE}": bundle.vocabulary.to_bytes(),
    }
    if own_part is not None:
        files[f"{place}/{PERSONAL_FILE}"] = own_part
    return files
