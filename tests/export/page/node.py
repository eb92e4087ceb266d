"""Ask the page's own JavaScript, run by Node.js."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import export.page.page_files

ASSETS = Path(export.page.page_files.__file__).parent / "assets"
_SCRIPT = Path(__file__).with_name("ask_page.mjs")


def ask_page(**asked: Mapping[str, object]) -> dict[str, Any]:
    """Return the answers of the page's modules by the names of the questions."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is missing: what the page's JavaScript computes is not compared")
    question = json.dumps({"assets": str(ASSETS), "asked": asked})
    command = [node, str(_SCRIPT)]
    done = subprocess.run(
        command, input=question, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers
