"""An owner reads in two sentences what the floor guarantees, and what it takes on trust."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_client.owner.floor import ExampleBudget, read_floor
from edge_client.owner.floor_in_words import floor_in_words
from edge_client.owner.starting_floor import write_starting_floor


def said(folder: Path, **changes: Any) -> tuple[str, str]:
    """Return the sentences about a new floor with some changes."""
    write_starting_floor(folder / "floor.toml")
    return floor_in_words(msgspec.structs.replace(read_floor(folder / "floor.toml"), **changes))


PROMISED = "epsilon at most 10, delta at most 0.001, noise of at least z = 0.3"
UNBOUNDED: dict[str, Any] = {
    "least_noise_multiplier": None,
    "largest_epsilon": None,
    "largest_delta": None,
}
HELPERS = frozenset({"ab" * 32})
EXAMPLES = ExampleBudget(epsilon=8.0, delta=1e-5)


@pytest.mark.parametrize(
    ("changes", "guaranteed", "trusted"),
    [
        ({}, PROMISED, 'this noise is added in modes "central" and "ftrl"'),
        ({}, "to a norm of 100", "a round has places for at least 2 devices"),
        ({"modes": frozenset({"ftrl"})}, PROMISED, 'this noise is added in mode "ftrl"'),
        (
            {"modes": frozenset({"local"})},
            "noise that it adds itself, against the coordinator too",
            "how often this device is asked",
        ),
        (
            {"modes": frozenset({"central", "none"}), **UNBOUNDED},
            'guarantees nothing: it accepts mode "none"',
            "Everything is left to the coordinator's word",
        ),
        # A bound on noise refuses what has none, whatever the modes say.
        ({"modes": frozenset({"central", "none"})}, PROMISED, 'added in mode "central"'),
        ({"modes": frozenset({"none"})}, "accepts no plan at all", "Nothing is left"),
        (
            {"example_privacy": EXAMPLES},
            "stops before all its rounds together pass epsilon 8 at delta 1e-05",
            "it says that it adds noise to the models",
        ),
        (
            {"example_privacy": EXAMPLES, "modes": frozenset({"none"}), **UNBOUNDED},
            "Each sentence is hidden in what this device sends, also from the coordinator",
            "adds no noise for it",
        ),
        (
            {"example_privacy": EXAMPLES, "modes": frozenset({"local"})},
            "Each sentence is hidden",
            "it says how often this device is asked",
        ),
        # The mode alone is not enough: without a helper no plan of it is accepted.
        ({"modes": frozenset({"masked"})}, "accepts no plan at all", "Nothing is left"),
        (
            {"modes": frozenset({"local", "masked"}), "helpers": HELPERS, "least_cohort": 20},
            f"noised sums of at least 20 devices, with {PROMISED} against it as against readers",
            "both together could see this device's update behind that share alone",
        ),
        (
            {"sums": "masked", "helpers": HELPERS},
            "The coordinator opens no update of this device",
            "the helper's word that it keeps the masks from the coordinator",
        ),
        (
            {"sums": "masked", "helpers": HELPERS},
            "The coordinator opens no update of this device",
            "the coordinator's that they are other people's, for it enrols them",
        ),
        ({"helpers": HELPERS}, PROMISED, 'this noise is added in modes "central" and "ftrl"'),
        (UNBOUNDED, "an epsilon and a delta of any size", "the coordinator's word"),
    ],
)
def test_each_floor_is_told_by_the_weakest_that_it_accepts(
    tmp_path: Path, changes: dict[str, Any], guaranteed: str, trusted: str
) -> None:
    first, second = said(tmp_path, **changes)

    assert guaranteed in first
    assert trusted in second
    for sentence in (first, second):
        assert sentence.endswith(".")
        assert ". " not in sentence


def test_a_floor_that_was_started_to_accept_no_guarantee_says_so(tmp_path: Path) -> None:
    path = tmp_path / "floor.toml"
    write_starting_floor(path, accepts_no_guarantee=True)

    first, _ = floor_in_words(read_floor(path))

    assert 'nothing: it accepts modes "none", "paper" and "paper-server"' in first
