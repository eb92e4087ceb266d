from pathlib import Path

import pytest

from privacy.foundation.strict_toml import DEEPEST, TomlError, parse_toml, read_toml


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a = " + "[" * 50_000, "at most 16 levels"),
        ("a = " + "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "at most 16 levels"),
        ("a." * 50_000 + "b = 1", "at most 16 parts"),
        ("['a'." + "a." * DEEPEST + "b]", "at most 16 parts"),
        ("a = " + "9" * 5000, "4300 digits"),
        ("a = 9223372036854775808", "fit into 64 bits"),
        ("a = [{b = 0x" + "f" * 100 + "}]", "fit into 64 bits"),
        ("a = 1\na = 2", "overwrite"),
        ("#" * (1 << 18), "at most 131072"),
    ],
)
def test_what_settings_must_not_be_is_refused(text: str, rule: str) -> None:
    with pytest.raises(TomlError, match=rule):
        parse_toml(text)


def test_long_texts_and_many_numbers_are_no_long_keys() -> None:
    text = "a = 'b.c.d'\n[a-b.c]\nd = [" + "0.5, " * 100 + "]"

    assert len(parse_toml(text)["a-b"]["c"]["d"]) == 100


def test_a_file_that_is_not_utf_8_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"a = '\xff'")

    with pytest.raises(TomlError, match="byte 5"):
        read_toml(path)
