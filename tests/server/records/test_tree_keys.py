"""The sealed secret of correlated noise opens under the settings that its noise followed from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config.store import StoreSettings
from server.records.folder import ServerFolder
from server.records.store import Store, StoreError, open_store
from server.records.tree_keys import noise_keys_of
from tests.server.config.test_guarantee_rules import BUFFERS, TREE, config

RUN = "0" * 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(StoreSettings().rooted(tmp_path))
    yield opened
    opened.close()


def drawn(tmp_path: Path, store: Store, privacy: str) -> bytes:
    return noise_keys_of(ServerFolder(tmp_path), store, config(privacy), RUN).draw("round 1")


def test_a_restart_opens_the_secret_and_a_raised_budget_keeps_it(
    tmp_path: Path, store: Store
) -> None:
    first = drawn(tmp_path, store, BUFFERS)

    assert drawn(tmp_path, store, BUFFERS.replace("8.0", "9.0")) == first


def test_a_file_that_names_the_tree_opens_what_one_without_a_name_sealed(
    tmp_path: Path, store: Store
) -> None:
    first = drawn(tmp_path, store, TREE)

    assert drawn(tmp_path, store, f'{TREE}mechanism = "tree"\n') == first


@pytest.mark.parametrize(
    "changed",
    [TREE, BUFFERS.replace("0.25", "0.26"), BUFFERS.replace("0.9", "0.91")],
    ids=["tree", "scales", "decays"],
)
def test_another_mechanism_or_other_buffers_do_not_open_it(
    tmp_path: Path, store: Store, changed: str
) -> None:
    drawn(tmp_path, store, BUFFERS)

    with pytest.raises(StoreError, match="noise was drawn under other settings"):
        drawn(tmp_path, store, changed)


def test_a_key_that_another_process_drew_meanwhile_stays(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ServerFolder(tmp_path)
    link = os.link

    def late(source: Path, target: Path) -> None:
        folder.noise_secret.write_bytes(b"s" * 32)
        link(source, target)

    monkeypatch.setattr(os, "link", late)

    first = drawn(tmp_path, store, BUFFERS)

    assert folder.noise_secret.read_bytes() == b"s" * 32
    assert drawn(tmp_path, store, BUFFERS) == first
    assert [path.name for path in tmp_path.glob(".noise*")] == []
