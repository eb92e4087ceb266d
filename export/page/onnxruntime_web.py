"""Have the browser's onnxruntime beside the page: fetched once from npm, and pinned byte by byte.

onnxruntime-web is Microsoft's, under the MIT licence. Three of its files are kept, those that run
graphs on WebAssembly in one thread, and the largest also compressed, as browsers take it.
"""

import base64
import gzip
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from privacy.foundation.atomic_files import READABLE, write_atomically

VERSION = "1.30.0"
FOLDER = Path(__file__).parent / "onnxruntime"
COMPRESSED = ".gz"

_PACKAGE_SHA512 = (
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
)
_SHA256 = {
    "ort.wasm.min.mjs": "219e6a1fc8a9938268d18efca3c91d310bd2f4a59bbd13744df5b2b7fc6cee3b",
    "ort-wasm-simd-threaded.mjs": (
        "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b"
    ),
    "ort-wasm-simd-threaded.wasm": (
        "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2"
    ),
}
_LARGE = "ort-wasm-simd-threaded.wasm"
_FETCH_TIMEOUT_S = 600


class PageError(ValueError):
    """Raised when the page's files cannot be had, or are not what they must be."""


def fetch(folder: Path = FOLDER) -> Path:
    """Fetch the files with npm into a folder, check them, and return the folder.

    Raise PageError if npm is missing or fails, or what it brings is not what is pinned.
    """
    with tempfile.TemporaryDirectory() as place:
        files = _unpacked(_packed(Path(place)))
    files[_LARGE + COMPRESSED] = gzip.compress(files[_LARGE], mtime=0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content, mode=READABLE)
    return folder


def runtime_files(folder: Path = FOLDER) -> Mapping[str, bytes]:
    """Return the files by name, the compressed one among them; none if they were not fetched.

    Raise PageError if one is missing beside others, or is not what is pinned.
    """
    if not folder.is_dir():
        return {}
    files = {}
    for name, expected in _SHA256.items():
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        _check(str(path), hashlib.sha256(content).hexdigest(), expected)
        files[name] = content
    compressed = folder / (_LARGE + COMPRESSED)
    if compressed.is_file():
        files[compressed.name] = compressed.read_bytes()
    return files


def _packed(place: Path) -> Path:
    """Return npm's package, whose bytes are the pinned ones."""
    command = ["npm", "pack", f"onnxruntime-web@{VERSION}", "--ignore-scripts", "--silent"]
    try:
        subprocess.run(
            [*command, "--pack-destination", str(place)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise PageError("npm is missing; install Node.js, which brings it, and try again") from None
    except subprocess.TimeoutExpired:
        raise PageError(f"npm brought nothing within {_FETCH_TIMEOUT_S} s; try again") from None
    except subprocess.CalledProcessError as error:
        told = (error.stderr or error.stdout or "it says nothing").strip().splitlines()[-1]
        raise PageError(f"npm could not fetch onnxruntime-web {VERSION}: {told}") from None
    (package,) = place.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    if found != _PACKAGE_SHA512:
        raise PageError(
            f"SHA-512 of onnxruntime-web {VERSION} must be {_PACKAGE_SHA512}, got {found}"
        )
    return package


def _unpacked(package: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(package) as archive:
        for name, expected in _SHA256.items():
            member = archive.extractfile(f"package/dist/{name}")
            content = b"" if member is None else member.read()
            _check(name, hashlib.sha256(content).hexdigest(), expected)
            files[name] = content
    return files


def _check(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise PageError(
            f"SHA-256 of {what} must be {expected}, got {found}; run `sotto-serve fetch` again"
        )
