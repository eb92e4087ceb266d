"""Write the lists with hashes that `make dev`, containers and devices install from.

A list holds the hash of every file of every version on the index, so it serves each machine and
each Python from 3.11 on. Run it after a pin in `pyproject.toml` or `deploy/device/*.in` has changed
(`make lock`), and read the difference. `make check` does not: it asks the index.

torch comes in builds whose files differ: the default index's brings CUDA, other indexes have builds
for the CPU. So torch has a list of its own, with the hashes of the default index's files and of
wheels of CPU builds that are given here once and kept from then on; what only the CUDA build needs
has another.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK, DEVICE = ROOT / "deploy" / "lock", ROOT / "deploy" / "device"
_PINNED = re.compile(r"^(?=[a-z0-9])", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_TITLES = {
    "dev": "Everything of the extra dev but torch.",
    "docs": "What `make docs` needs on top of the list dev.",
    "server": "What a coordinator needs beside torch.",
    "helper": "What a helper needs.",
    "serve": "What a server of exported models needs.",
    "predict": "What a device needs that only suggests words, and nothing else.",
    "train": "What a device needs beside torch that also trains, and nothing else.",
    "torch": "torch, as the default index and others have it.",
    "cuda": "What the default index's torch needs on Linux on top: the libraries of CUDA.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Resolve every list anew and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="*", type=Path, help="CPU builds of torch that you trust")
    wheels: list[Path] = parser.parse_args(argv).wheels

    whole = {
        "dev": _resolve("pyproject.toml", "--extra", "dev"),
        "server": _resolve(
            "pyproject.toml", "--extra", "server", "--extra", "export", "--extra", "postgresql"
        ),
        "helper": _resolve("pyproject.toml", "--extra", "helper"),
        "serve": _resolve("pyproject.toml", "--extra", "serve"),
    }
    for name, pins in whole.items():
        _write(name, [pin for pin in pins if _build_of(pin) == ""])
    _write("docs", _on_top_of_dev("docs"))
    for name in ("predict", "train"):
        _write(name, _resolve(f"deploy/device/{name}.in", "--no-deps"))
    (torch,) = [pin for pin in whole["dev"] if _build_of(pin) == "torch"]
    _write("torch", [_with_cpu_builds(torch, wheels)])
    _write("cuda", [pin for pin in whole["dev"] if _build_of(pin) == "cuda"])
    return 0


def path_of(name: str) -> Path:
    """Return where a list lies."""
    return (DEVICE if name in ("predict", "train") else LOCK) / f"{name}.txt"


def _resolve(source: str, *options: str) -> list[str]:
    """Return each pin with its hashes, as pip reads it."""
    command = [sys.executable, "-m", "uv", "pip", "compile", source, *options, "--quiet"]
    how = ["--universal", "--python-version", "3.11", "--prerelease", "disallow"]
    bare = ["--generate-hashes", "--no-annotate", "--no-header"]
    done = subprocess.run(
        [*command, *how, *bare], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return [pin for pin in _PINNED.split(done.stdout) if pin.strip()]


def _on_top_of_dev(extra: str) -> list[str]:
    """Return an extra's pins without those of the list dev, whose versions it keeps."""
    dev = path_of("dev")
    # A pin of dev with a marker is not installed everywhere.
    everywhere = {
        pin.partition("==")[0]
        for pin in _PINNED.split(dev.read_text())
        if ";" not in pin.partition("\n")[0]
    }
    pins = _resolve("pyproject.toml", "--extra", extra, "--constraint", str(dev))
    return [pin for pin in pins if pin.partition("==")[0] not in everywhere]


def _build_of(pin: str) -> str:
    """Return ``torch``, ``cuda`` for what only a build of it needs, or nothing."""
    name = pin.partition("==")[0]
    if name == "torch":
        return name
    return "cuda" if name == "triton" or name.startswith(("cuda-", "nvidia-")) else ""


def _with_cpu_builds(torch: str, wheels: Sequence[Path]) -> str:
    """Return torch's pin with the hashes of the wheels, and those that its list has of it."""
    pin = torch.split(maxsplit=1)[0]
    version = pin.partition("==")[2]
    hashes = set(_HASH.findall(torch))
    path = path_of("torch")
    if path.is_file() and f"\n{pin} " in path.read_text():
        hashes.update(_HASH.findall(path.read_text()))
    for wheel in wheels:
        if not wheel.name.startswith(f"torch-{version}+cpu-"):
            raise SystemExit(f"{wheel.name} must be a CPU build, torch-{version}+cpu-*.whl")
        with wheel.open("rb") as file:
            hashes.add(f"--hash=sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}")
    return " \\\n    ".join([pin, *sorted(hashes)]) + "\n"


def _write(name: str, pins: Sequence[str]) -> None:
    path = path_of(name)
    how = f"pip install --no-deps --require-hashes -r {path.relative_to(ROOT)}"
    path.write_text(f"# {_TITLES[name]} Written by `make lock`.\n#   {how}\n{''.join(pins)}")


if __name__ == "__main__":
    sys.exit(main())
