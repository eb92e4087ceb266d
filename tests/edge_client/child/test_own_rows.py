"""A device's own examples of a plugin's task: cut as everybody's are, and told of by no word."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from edge_client.child.own_examples import OwnRows
from edge_client.datasets.text_set import DatasetError
from models.plugins.loaded import load_plugins
from models.plugins.names import PluginError
from models.settings.plugin import PluginModel
from models.tasks.plugin_task import PluginTask, plugin_task
from models.tasks.rows import Rows
from models.tasks.unusable_examples import UnusableExamplesError
from tests.plugin_package import EXAMPLE_PLUGIN, use_example

LINE = '{"text": "free money now, Now!", "spam": true}\n'


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PluginTask:
    use_example(monkeypatch, tmp_path)
    load_plugins([EXAMPLE_PLUGIN])
    return plugin_task("spam")


def read(task: PluginTask, data: Path) -> OwnRows:
    return OwnRows.read(task, data, PluginModel(name="word_counts").own)


def test_the_newest_fifth_is_held_out_and_words_are_counted(
    task: PluginTask, tmp_path: Path
) -> None:
    data = tmp_path / "messages.jsonl"
    data.write_text(LINE * 8 + LINE.replace("true", "false") * 2)

    own = read(task, data)

    counts, labels = own.training().tensors
    assert labels.tolist() == [1] * 8
    assert own.held_out().tensors[1].tolist() == [0, 0]
    # Four words, two of which are one; more only if two of three shared one of 256 buckets.
    assert sorted(counts[0].tolist())[-3:] == [1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "content", ["hunter2", '{"text": "hunter2"}', LINE + '{"text": "hunter2", "spam": 1}', "\xff"]
)
def test_a_damaged_file_is_refused_without_a_word_of_it(
    content: str, task: PluginTask, tmp_path: Path
) -> None:
    data = tmp_path / "messages.jsonl"
    data.write_bytes(content.encode("latin-1"))

    with pytest.raises(UnusableExamplesError, match="of the messages is no message") as refused:
        read(task, data)

    assert "hunter2" not in str(refused.value)


def test_no_examples_are_refused(task: PluginTask, tmp_path: Path) -> None:
    data = tmp_path / "messages.jsonl"
    data.write_text("")

    with pytest.raises(DatasetError, match="at least 1 to train on, got 0"):
        read(task, data).training()
    with pytest.raises(UnusableExamplesError, match="must be a file"):
        read(task, tmp_path / "missing.jsonl")


def raising(path: Path, settings: Any) -> Rows:
    raise KeyError("hunter2")


def test_a_task_that_breaks_is_told_of_without_its_own_words(tmp_path: Path) -> None:
    # Only ``read`` is asked.
    broken: Any = SimpleNamespace(read=raising)
    with pytest.raises(PluginError, match=r"reading the data raised KeyError$"):
        OwnRows.read(broken, tmp_path, PluginModel(name="any"))
    lazy: Any = SimpleNamespace(read=lambda path, settings: [1])
    with pytest.raises(PluginError, match="must read Rows, got list"):
        OwnRows.read(lazy, tmp_path, PluginModel(name="any"))


def test_rows_have_one_length() -> None:
    rows = Rows((torch.arange(3), torch.zeros(3, 2)))

    assert (len(rows), len(rows[1:])) == (3, 2)
    with pytest.raises(ValueError, match=r"of one length, got \[3, 2\]"):
        Rows((torch.arange(3), torch.zeros(2)))
    with pytest.raises(ValueError, match="at least one"):
        Rows(())
