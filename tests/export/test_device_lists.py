"""A device gets by with the packages on its list, and onnxruntime reports to nobody from it."""

import os
import re
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest

from privacy.foundation.installation import PACKAGES

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "deploy" / "device"

# Stands for an environment with the listed packages alone: nothing else from site-packages loads.
ONLY = """
import sys
from importlib.abc import MetaPathFinder

class Unlisted(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top not in LISTED and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Unlisted())
"""


def _importable(name: str, *beside: str) -> set[str]:
    """Return the import names of every package on a list or beside it, and sotto's own."""
    pins = [*re.findall(r"(?m)^([a-z0-9-]+)==", (LISTS / name).read_text()), *beside]
    tops = {path.parts[0].partition(".")[0] for pin in pins for path in files(pin) or ()}
    return tops | set(PACKAGES)


def _run(listed: set[str], code: str, home: Path) -> subprocess.CompletedProcess[str]:
    # onnxruntime is silent by itself where CI is set.
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [sys.executable, "-P", "-c", f"LISTED = {sorted(listed)!r}\n{ONLY}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment | {"HOME": str(home), "PYTHONPATH": str(ROOT)},
    )


def test_words_need_the_predicting_devices_list_alone_and_are_reported_to_nobody(
    bundle_folder: Path, tmp_path: Path
) -> None:
    code = f"from export.cli import main\nsys.exit(main(['suggest', {str(bundle_folder)!r}, 'th']))"

    done = _run(_importable("predict.txt"), code, tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the")
    # Where it reports, onnxruntime keeps an identifier and a cache in the home folder.
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.slow
def test_training_needs_the_training_devices_list_alone_and_nothing_that_is_trimmed(
    tmp_path: Path,
) -> None:
    script = (LISTS / "trim-torch.sh").read_text()
    trimmed = re.findall(r"[\w./]+", script.partition("for part in")[2].partition("do\n")[0])
    assert {"_inductor", "test", "include"} <= set(trimmed)
    code = (
        "import edge_client.child.work, edge_client.cli, torch\n"
        "from pathlib import Path\n"
        "home = Path(torch.__file__).parent\n"
        f"gone = [home / part for part in {trimmed!r}]\n"
        "files = [getattr(module, '__file__', None) for module in sys.modules.values()]\n"
        "loaded = {Path(file) for file in files if file}\n"
        "print([str(p) for p in loaded if any(p == g or g in p.parents for g in gone)])"
    )

    done = _run(_importable("train.txt", "torch"), code, tmp_path)

    assert (done.stdout, done.stderr) == ("[]\n", "")
