import pytest

from simulation.config.overrides import parse_override, with_setting


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rounds.cap=10", (10,)),
        ("rounds.participation_rate=0.1,0.5", (0.1, 0.5)),
        ("data.partition=users", ("users",)),
        ("data.ratio=[1,1,3]", ([1, 1, 3],)),
        ("data.ratio=[1, 1],[1, 1, 3]", ([1, 1], [1, 1, 3])),
        ("model.tied=true,false", (True, False)),
        ('aggregation={rule="mean", server_step_size=1.2},{rule="literal"}',
         ({"rule": "mean", "server_step_size": 1.2}, {"rule": "literal"})),
        ('vocabulary.name="a,b"', ("a,b",)),
    ],
)  # fmt: skip
def test_values_are_read_as_toml_or_as_words(text: str, values: tuple[object, ...]) -> None:
    assert parse_override(text).values == values


@pytest.mark.parametrize("text", ["rounds.cap", "=3", "rounds..cap=3", "rounds.cap=", "a=,"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a setting must read like"):
        parse_override(text)


def test_one_setting_changes_and_the_original_stays() -> None:
    tables = {"rounds": {"cap": 10, "quorum": 2}}

    changed = with_setting(tables, ("rounds", "cap"), 20)
    added = with_setting(tables, ("data", "dataset"), "ptb")

    assert changed == {"rounds": {"cap": 20, "quorum": 2}}
    assert added == {"rounds": {"cap": 10, "quorum": 2}, "data": {"dataset": "ptb"}}
    assert tables == {"rounds": {"cap": 10, "quorum": 2}}


def test_a_path_through_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rounds\.cap\.x: cap is a value"):
        with_setting({"rounds": {"cap": 10}}, ("rounds", "cap", "x"), 1)
