"""Put the page's files together: the same for a server and, as plain files, for a device.

Everything is served by one origin, and a content security policy lets the page reach nothing else.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from export.page.onnxruntime_web import COMPRESSED, VERSION
from models.text.language_words import SHIPPED_LANGUAGES, language_file
from models.text.languages import primary

INDEX = "index.html"
SERVICE_WORKER = "service_worker.js"

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; media-src blob:; base-uri 'none'; form-action 'none'"
)

_WORD_LIST = "page/words/{}.txt"
_ASSETS = Path(__file__).parent / "assets"
_RUNTIME = f"page/onnxruntime-web-{VERSION}/"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """One file of the page.

    Attributes:
        content: Its bytes.
        media_type: Their MIME type.
        never_changes: Whether its name will always mean these bytes.
        compressed: The same by gzip, if that was made.
    """

    content: bytes
    media_type: str
    never_changes: bool = False
    compressed: bytes | None = None

    @cached_property
    def sha256(self) -> str:
        """Return the hex digest of the content, which is computed once: it is megabytes."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Source:
    """The place where the page finds a keyboard.

    Attributes:
        description: Address of what it is, relative to the page.
        files: Address beneath which its versions' files lie.
        needs_token: Whether a bearer token must be typed first.
    """

    description: str
    files: str
    needs_token: bool


def page_files(source: Source, runtime: Mapping[str, bytes]) -> dict[str, PageFile]:
    """Return all files of the page by their addresses, relative to it.

    Without onnxruntime's files, ``runtime``, the page says how they are fetched.
    """
    files = {
        path.relative_to(_ASSETS).as_posix(): _file(path.name, path.read_bytes())
        for path in sorted(_ASSETS.rglob("*"))
        if path.is_file()
    }
    files[INDEX] = _file(INDEX, files[INDEX].content.replace(b"{policy}", POLICY.encode()))
    files["page/source.js"] = _file("source.js", _source(source, has_runtime=bool(runtime)))
    for language in SHIPPED_LANGUAGES:
        name = _WORD_LIST.format(language)
        files[name] = _file(name, language_file(language))
    for name, content in runtime.items():
        if not name.endswith(COMPRESSED):
            compressed = runtime.get(name + COMPRESSED)
            files[_RUNTIME + name] = _file(name, content, never=True, compressed=compressed)
    files[SERVICE_WORKER] = _service_worker(files)
    return files


def word_lists(languages: Iterable[str]) -> list[str]:
    """Return the addresses, relative to the page, of the words that ship for some BCP 47 tags."""
    names = dict.fromkeys(map(primary, languages))
    return [_WORD_LIST.format(name) for name in names if name in SHIPPED_LANGUAGES]


def _file(
    name: str, content: bytes, *, never: bool = False, compressed: bytes | None = None
) -> PageFile:
    return PageFile(content, _MEDIA_TYPES[Path(name).suffix], never, compressed)


def _source(source: Source, *, has_runtime: bool) -> bytes:
    values = {
        "DESCRIPTION": source.description,
        "FILES": source.files,
        "NEEDS_TOKEN": source.needs_token,
        "ONNXRUNTIME": _RUNTIME if has_runtime else None,
    }
    lines = [
        f"export const {name} = {msgspec.json.encode(value).decode()};\n"
        for name, value in values.items()
    ]
    return "".join(lines).encode()


def _service_worker(files: Mapping[str, PageFile]) -> PageFile:
    """Return the service worker, which changes whenever one of the files does."""
    kept = {name: file for name, file in files.items() if name != SERVICE_WORKER}
    every = "".join(f"{name} {kept[name].sha256}\n" for name in sorted(kept))
    names = [name if name != INDEX else "./" for name in sorted(kept)]
    text = files[SERVICE_WORKER].content.decode()
    text = text.replace("{version}", hashlib.sha256(every.encode()).hexdigest()[:16])
    text = text.replace('["{files}"]', msgspec.json.encode(names).decode())
    return _file(SERVICE_WORKER, text.encode())
