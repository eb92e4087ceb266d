"""Figures of runs in groups, and what needs no picture."""

from models.pages.by_round import Course, legend, sections

RUN = Course(
    "a",
    0,
    [
        (
            1,
            {
                "perplexity": 9.0,
                "cohort": 3,
                "round_s": 1.0,
                "refused_floor_epsilon": 0,
                "kind": "x",
            },
        ),
        (2, {"perplexity": 8.0, "cohort": 3, "round_s": 2.0, "refused_floor_epsilon": 2}),
    ],
)


def test_figures_stand_where_people_ask_for_them() -> None:
    told = "".join(sections([RUN]))

    heads = ["The model", "perplexity", "Participation", "refused floor epsilon", "Time"]
    places = [told.index(head) for head in heads]
    assert places == sorted(places)
    assert "kind" not in told


def test_what_never_changes_is_told_in_a_line() -> None:
    assert "The same in every round: cohort 3." in "".join(sections([RUN]))
    # Another run that had another cohort makes it worth a picture.
    other = Course("b", 1, [(1, {"cohort": 4})])
    assert "The same" not in "".join(sections([RUN, other]))


def test_what_never_changes_has_all_its_whole_digits() -> None:
    course = Course("a", 0, [(1, {"update_bytes": 28_417_628}), (2, {"update_bytes": 28_417_628})])

    assert "update bytes 28,417,628." in "".join(sections([course]))


def test_a_run_that_diverged_at_once_is_told_of() -> None:
    assert "not finite in any" in "".join(sections([Course("", 0, [(1, {"perplexity": None})])]))


def test_a_legend_names_each_colour_once_and_escapes() -> None:
    told = legend({0: "<a>", 9: "b"})

    assert "&lt;a&gt;" in told
    # Eight colours: the tenth is the second again.
    assert "var(--c1)" in told
