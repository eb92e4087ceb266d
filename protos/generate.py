"""Generate the Python code of the .proto files, or check that the committed code is fresh."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ("federation", "helper", "keyboard")
GENERATED = [
    proto + ending
    for proto in PROTOS
    for ending in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
]


def generate(out: Path) -> None:
    """Write the generated files under ``out``/protos."""
    plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={out}"]
    command += [f"--pyi_out={out}", f"--grpc_python_out={out}", f"--mypy_grpc_out={out}"]
    command += [f"--plugin=protoc-gen-mypy_grpc={plugin}"]
    command += [f"protos/{proto}.proto" for proto in PROTOS]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def stale_files() -> list[str]:
    """Return the committed files that differ from what protoc makes now."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        return [
            name
            for name in GENERATED
            if (Path(folder) / "protos" / name).read_bytes()
            != (ROOT / "protos" / name).read_bytes()
        ]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the code is fresh")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    stale = stale_files()
    for name in stale:
        print(f"protos/{name} is not what protoc makes of its .proto file; run: make protos")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
