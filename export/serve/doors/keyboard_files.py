"""Give a client the files of its own keyboard, for programs that suggest by themselves.

The page runs the model in the browser, so that no key travels. Everybody's model is one graph and
its word list, which never change under their version's name; a client's own tensors come as a
safetensors file that nobody stores on the way. With manifest and signature it is a bundle.
"""

import hashlib
from typing import Literal

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from export.bundles.manifest import VOCABULARY_FILE
from export.bundles.signed_files import MANIFEST_FILE
from export.page.described import describe, describe_voice, personal_file
from export.serve.doors.desk import ClientName, Desk, DeskOf
from export.serve.loaded.keyboard_version import ServedModel
from export.serve.loaded.personal_models import NoPersonalModelError
from export.serve.loaded.shelf import NothingServedError
from export.serve.loaded.voice_version import voices_of

_BYTES = "application/octet-stream"
_MEDIA_TYPES = {
    VOCABULARY_FILE: "text/plain; charset=utf-8",
    MANIFEST_FILE: "application/json",
}
_FOREVER = "private, max-age=31536000, immutable"

router = APIRouter(prefix="/v1/keyboard", tags=["keyboard"])


@router.get("")
async def keyboard(client: ClientName, desk: DeskOf) -> Response:
    """Describe the client's keyboard: each version, its round, privacy, words and files.

    A served voice is described too, with the voices that the client may ask for.
    """
    versions = [desk.shelf.version(name) for name in desk.shelf.versions]
    described = await desk.on_thread(
        client, lambda: [_described(desk, client, one) for one in versions]
    )
    voice = await desk.on_thread(client, lambda: _described_voice(desk, client))
    content = msgspec.json.encode({"client": client, "versions": described, "voice": voice})
    return Response(content, media_type="application/json")


@router.get("/{version}/personal.safetensors")
async def own_part(version: str, client: ClientName, desk: DeskOf) -> Response:
    """Give the client's own tensors, float32, by the names of the graph's inputs.

    Raise HTTPException if the version has one model for everyone.
    """
    served = desk.shelf.version(version)
    if served.manifest.personal is None:
        raise HTTPException(404, "this version has the same model for everyone")
    content = await desk.on_thread(
        client, lambda: personal_file(desk.people.model_of(client, served))
    )
    return Response(content, media_type="application/octet-stream")


@router.get("/{version}/{name}")
async def shared_file(
    version: str,
    name: Literal["model.onnx", "vocabulary.txt", "manifest.json", "manifest.sig", "signer.der"],
    client: ClientName,
    desk: DeskOf,
    request: Request,
) -> Response:
    """Give a file of a version's bundle; all of them together are the bundle.

    Raise HTTPException if a file of the signature is asked for and the bundle is not signed.
    """
    served = desk.shelf.version(version)
    if name not in served.files:
        raise HTTPException(404, f"this version's bundle is not signed, it has no {name}")
    tag = f'"{_sha256(served, name)}"'
    headers = {"ETag": tag, "Cache-Control": _FOREVER, "Vary": "Authorization"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(
        memoryview(served.files[name]), headers=headers, media_type=_MEDIA_TYPES.get(name, _BYTES)
    )


def _sha256(served: ServedModel, name: str) -> str:
    """Return a file's digest; the manifest has those of the large ones."""
    pinned = served.manifest.files.get(name)
    return hashlib.sha256(served.files[name]).hexdigest() if pinned is None else pinned.sha256


def _described_voice(desk: Desk, client: str) -> dict[str, object] | None:
    try:
        served = desk.voices.shelf.version(None)
    except NothingServedError:
        return None
    voices = voices_of(desk.folder, served, client)
    return describe_voice(
        served.version, served.manifest, voices=voices, has_own_part=client in voices
    )


def _described(desk: Desk, client: str, served: ServedModel) -> dict[str, object]:
    try:
        own_part = personal_file(desk.people.model_of(client, served))
    except NoPersonalModelError:
        own_part = None
    return describe(
        served.version,
        served.manifest,
        graph=served.graph,
        ranking=served.ranking,
        open_ranking=served.open_ranking,
        own_part=own_part,
    )
