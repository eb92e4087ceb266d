"""A person's own text: what is stored, for how long, and what survives a crash."""

import json
import stat
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_client.datasets.text_set import DatasetError
from edge_client.owner.typed_text import LocalText, TextSettings

DAY = 86_400.0
NOW = 1_800_000_000.0


def store(folder: Path, **settings: float | bool | None) -> LocalText:
    return LocalText(folder / "typed.jsonl", msgspec.convert(settings, TextSettings))


def texts(text: LocalText, now: float = NOW) -> list[str]:
    return [stored.text for stored in text.read(now=now)]


def test_texts_are_read_in_the_order_they_were_typed(tmp_path: Path) -> None:
    text = store(tmp_path)
    for typed in ("one", "two\nlines", "drei ü"):
        assert text.add(typed, now=NOW, incognito=False)

    assert texts(text) == ["one", "two\nlines", "drei ü"]
    assert stat.S_IMODE((tmp_path / "typed.jsonl").stat().st_mode) == 0o600


def test_incognito_text_never_reaches_the_disk(tmp_path: Path) -> None:
    text = store(tmp_path)

    assert not text.add("secret", now=NOW, incognito=True)

    assert list(tmp_path.iterdir()) == []


def test_incognito_text_that_another_program_stored_is_not_read_and_is_removed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "typed.jsonl"
    path.write_text('{"text": "secret", "time": 1, "incognito": true}\n{"text": "open"}\n')
    text = store(tmp_path)

    assert texts(text) == ["open"]
    assert text.tidy(now=NOW) == 1
    assert "secret" not in path.read_text()


def test_texts_older_than_the_retention_are_not_read_and_are_removed(tmp_path: Path) -> None:
    text = store(tmp_path, retention_days=2)
    for days in (3.0, 2.0, 1.9, 0.0):
        text.add(f"{days} days", now=NOW - days * DAY, incognito=False)

    assert texts(text) == ["1.9 days", "0.0 days"]
    assert text.tidy(now=NOW) == 2
    assert "3.0 days" not in (tmp_path / "typed.jsonl").read_text()
    assert text.tidy(now=NOW) == 0


def test_a_text_without_a_time_is_as_old_as_the_file(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    path.write_text('{"text": "when?"}\n')
    changed = path.stat().st_mtime
    text = store(tmp_path, retention_days=1)

    assert texts(text, now=changed + DAY - 1) == ["when?"]
    assert texts(text, now=changed + DAY + 1) == []


def test_the_newest_texts_are_kept_within_a_cap(tmp_path: Path) -> None:
    plain = store(tmp_path)
    for number in range(5):
        plain.add(f"text {number}", now=NOW, incognito=False)
    line_bytes = (tmp_path / "typed.jsonl").stat().st_size // 5

    by_count = texts(store(tmp_path, largest_texts=2))
    by_bytes = texts(store(tmp_path, largest_bytes=3 * line_bytes))

    assert by_count == ["text 3", "text 4"]
    assert by_bytes == ["text 2", "text 3", "text 4"]
    assert texts(store(tmp_path, largest_bytes=line_bytes - 1)) == []


def test_deleting_used_text_leaves_what_came_since(tmp_path: Path) -> None:
    text = store(tmp_path)
    text.add("used", now=NOW, incognito=False)
    used = text.read(now=NOW)
    text.add("new", now=NOW + 1, incognito=False)

    text.delete(used)

    assert texts(text) == ["new"]
    assert "used" not in (tmp_path / "typed.jsonl").read_text()


def test_reading_writes_nothing_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "typed.jsonl").write_text('{"text": "mine"}\n')

    texts(store(tmp_path))

    assert [path.name for path in tmp_path.iterdir()] == ["typed.jsonl"]


@pytest.mark.slow
@given(st.lists(st.text(max_size=20), max_size=4), st.text(min_size=1, max_size=20), st.data())
def test_an_append_cut_short_costs_only_itself(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], torn: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    text, path = store(folder), folder / "typed.jsonl"
    for typed in before:
        text.add(typed, now=NOW, incognito=False)
    size = path.stat().st_size if before else 0
    text.add(torn, now=NOW, incognito=False)
    whole = path.read_bytes()
    # Less than the whole object: losing only the line's end loses nothing.
    path.write_bytes(whole[: data.draw(st.integers(size, len(whole) - 2))])

    assert texts(text) == before
    text.add("after", now=NOW, incognito=False)
    assert texts(text) == [*before, "after"]


def test_a_last_line_without_its_end_is_not_joined_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "typed.jsonl").write_text('{"text": "whole"}')
    text = store(tmp_path)

    text.add("next", now=NOW, incognito=False)

    assert texts(text) == ["whole", "next"]


def test_nothing_is_lost_when_texts_are_added_while_others_are_removed(tmp_path: Path) -> None:
    text = store(tmp_path, retention_days=1)

    def add_many(name: str) -> None:
        for number in range(40):
            text.add(f"{name} {number}", now=NOW, incognito=False)
            text.add("old", now=0.0, incognito=False)

    writers = [threading.Thread(target=add_many, args=(name,)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        text.tidy(now=NOW)
    text.tidy(now=NOW)

    expected = {f"{name} {number}" for name in ("a", "b") for number in range(40)}
    assert sorted(texts(text)) == sorted(expected)


def test_a_line_that_is_no_text_is_refused_by_number_and_nothing_is_removed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "typed.jsonl"
    content = json.dumps({"text": "private", "incognito": True}) + '\n{"txt": "private"}\n'
    path.write_text(content)
    text = store(tmp_path)

    for act in (text.read, text.tidy):
        with pytest.raises(DatasetError, match=r"typed\.jsonl, line 2") as refused:
            act(now=NOW)
        assert "private" not in str(refused.value)
    assert path.read_text() == content


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "typed.jsonl").write_bytes(b"\0\1\2\n")

    with pytest.raises(DatasetError, match="binary"):
        store(tmp_path).read(now=NOW)


def test_a_device_that_has_typed_nothing_has_no_text(tmp_path: Path) -> None:
    assert texts(store(tmp_path)) == []
    assert store(tmp_path).tidy(now=NOW) == 0


@pytest.mark.parametrize(
    "settings",
    [{"retention_days": 0.0}, {"largest_bytes": 0}, {"largest_texts": -1}, {"retention": 1}],
)
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, TextSettings)
