from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from simulation.cli import main

TOML = """\
seed = 1
task = "image_classification"

[data]
dataset = "digits"
partition = "pathological"
client_count = 10
classes_per_client = 2
novel_share = 0.2

[model]
family = "vit"
class_count = 10
image_size = 8
channel_count = 1
pixel_mean = [0.3]
pixel_std = [0.4]
patch_size = 4
model_size = 8
head_count = 2
head_size = 4
layer_count = 2
feedforward_size = 8
dropout = 0.0

[training]
learning_rate = 0.1
batch_size = 16

[privacy]
mode = "none"

[aggregation]
rule = "mean"

[rounds]
cap = 2
cohort_size = 5
quorum = 2
deadline_s = 60.0
"""

MakeRun = Callable[..., Path]


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Return what gives the folder of a finished run of a method; each is run once."""
    folder = tmp_path_factory.mktemp("runs")
    preset = folder / "tiny.toml"
    preset.write_text(TOML)

    def run(method: str, *settings: str) -> Path:
        out = folder / "-".join((method, *settings)).replace("/", "-")
        changes = [part for setting in settings for part in ("--set", setting)]
        common = ["--method", method, "--workers", "1", "--out", str(out), "--json"]
        if not (out / "final.json").exists():
            with redirect_stdout(StringIO()):  # what it prints is not the asking test's
                assert main(["run", str(preset), *common, *changes]) == 0
        return out

    return run
