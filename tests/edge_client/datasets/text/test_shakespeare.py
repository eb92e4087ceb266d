"""Roles of plays load from both layouts, their lines in the order of the play."""

import gzip
import json
import os
from pathlib import Path

import pytest

from edge_client.datasets.registry import load_characters
from edge_client.datasets.text_set import DatasetError

DATA = Path(os.environ.get("SOTTO_DATA", Path(__file__).parents[5] / "shared" / "data"))


def write_roles(path: Path, *roles: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as lines:
        for role in roles:
            lines.write(json.dumps(role) + "\n")


def test_speeches_are_joined_in_the_order_of_the_play(tmp_path: Path) -> None:
    write_roles(
        tmp_path / "shakespeare" / "roles.jsonl.gz",
        {"user": "h/HAMLET", "play": "h", "speeches": [[7, ["or not"]], [2, ["To be,", " "]]]},
        {"user": "h/GHOST", "speeches": []},
    )

    loaded = load_characters("shakespeare", tmp_path)

    assert loaded.texts == {"h/HAMLET": "To be, or not"}
    assert loaded.notes == ("1 roles that say nothing were left out",)


def write_leaf(folder: Path, **users: dict[str, object]) -> None:
    leaf = {"users": list(users), "num_samples": [1] * len(users), "user_data": users}
    (folder / "all_data.json").write_text(json.dumps(leaf))


def test_leafs_layout_loads_with_and_without_the_raw_text(tmp_path: Path) -> None:
    write_leaf(
        tmp_path,
        raw={"raw": "To be,\nor  not"},
        windows={"x": ["abc", "bcd", "cde"], "y": ["d", "e", "f"]},
    )

    loaded = load_characters("shakespeare", tmp_path)

    assert loaded.texts == {"raw": "To be, or not", "windows": "abcdef"}


@pytest.mark.parametrize(
    "windows", [{"x": ["abc", "xyz"], "y": ["d", "e"]}, {"x": ["abc"], "y": ["d", "e"]}]
)
def test_a_sample_of_leafs_windows_is_no_text(tmp_path: Path, windows: dict[str, object]) -> None:
    write_leaf(tmp_path, romeo=windows)

    with pytest.raises(DatasetError, match="make it with all of the data and --raw"):
        load_characters("shakespeare", tmp_path)


def test_files_that_are_missing_cut_short_or_empty_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no roles\.jsonl\.gz or .*all_data\.json"):
        load_characters("shakespeare", tmp_path)
    with pytest.raises(DatasetError, match="shakespeare needs a path"):
        load_characters("shakespeare")
    with pytest.raises(DatasetError, match="must be one of shakespeare, got 'bacon'"):
        load_characters("bacon")

    file = tmp_path / "roles.jsonl.gz"
    write_roles(file)
    with pytest.raises(DatasetError, match="must have a role that says something"):
        load_characters("shakespeare", tmp_path)

    write_roles(file, {"user": "a", "speeches": [[1, ["word " * 500]]]})
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DatasetError, match="is damaged"):
        load_characters("shakespeare", tmp_path)

    (tmp_path / "all_data.json").write_text('{"users": ["a"], "user_data": {}}')
    with pytest.raises(DatasetError, match="1 lack it"):
        load_characters("shakespeare", tmp_path / "all_data.json")


@pytest.mark.skipif(not (DATA / "shakespeare").is_dir(), reason="plays are absent")
def test_the_plays_have_1398_roles() -> None:
    texts = load_characters("shakespeare", DATA).texts

    assert len(texts) == 1_398
    assert texts["hamlet/HAMLET"].startswith("A little more than kin")
