"""Read the arguments of ``sotto-simulate tune`` and print what it found."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from privacy.accounting.checked_values import check_epsilon
from privacy.foundation.flags import Flag
from privacy.foundation.whole_number_flags import at_least_one, seed_list
from simulation.commands.flags import Rounds

if TYPE_CHECKING:
    from simulation.tuning.command import TuneRequest
    from simulation.tuning.space import Dimension

TUNE_EXAMPLES = """\
examples:
  what epsilon 8 costs a keyboard of a million people, a thousand of them a round:
    sotto-simulate tune keyboard-sms --public --target-epsilon 8 \\
      --population 1000000 --simulated-cohort 1000 --trials 40 --seeds 1,2,3
  all noise modes, with the multiplier between 0.5 and 8:
    sotto-simulate tune keyboard-tiny --public --target-epsilon 8 \\
      --modes central,local,ftrl --search noise_multiplier=0.5..8
  eight trials at a time on a Ray cluster:
    sotto-simulate tune keyboard-sms --public --target-epsilon 8 --batch 8 --engine ray
  on private data, compared on a public text:
    sotto-simulate tune keyboard-central --target-epsilon 8 --score-text public.txt \\
      --set privacy.noise_multiplier=3
"""


class Tuned(Rounds, frozen=True, kw_only=True):
    """A search for settings.

    Attributes:
        public: Nobody's text here is private: search with Optuna, and show every trial.
        score_text: The data is private: a random number of runs, compared on this public text; only
            the best is shown, and its epsilon counts the search.
        target_epsilon: Epsilon of the whole deployment; on private data, of the whole search.
        delta: Delta of the deployment (default: N^-1.1).
        population: People enrolled in the deployment, N (default: the clients at hand).
        simulated_cohort: People a deployed round expects: noise is that of such a cohort, added to
            the mean of the clients at hand, and results are labelled extrapolated.
        modes: Noise modes, with commas: central, local, ftrl, masked.
        honest_share: Masked: share of a round's fewest contributors believed to add their noise.
        rules: Rules.
        noise_on: What the coordinator noises: the mean, or the sums that it is divided from, which
            pays in large cohorts for an attention strength of 0.5 and more. On private data the
            preset says it.
        search: Range or list of noise_multiplier, clipping_norm (parameter units),
            attention_strength, cohort (people) or server_step_size; may be repeated.
        trials: Trials in all.
        batch: Trials that are drawn at once, before the first of them is tried; a cluster tries
            them side by side. It is a setting of the search, which it changes on any engine.
        seeds: Seeds of a trial, with commas between them.
        expected_runs: Mean of the random number of runs on private data.
        out: Folder of the search (default: runs/NAME-tune).
    """

    public: Annotated[bool, Flag(one_of="data")] = False
    score_text: Annotated[Path | None, Flag("FILE", one_of="data")] = None
    target_epsilon: float
    delta: float | None = None
    population: int | None = None
    simulated_cohort: Annotated[int | None, Flag("PEOPLE")] = None
    modes: str = "central"
    honest_share: Annotated[float | None, Flag("SHARE")] = None
    rules: str = "mean,attentive"
    noise_on: Literal["mean", "sums"] = "mean"
    search: Annotated[list[str], Flag("NAME=LOW..HIGH")] = msgspec.field(default_factory=list)
    trials: Annotated[int, Flag(parse=at_least_one)] = 40
    batch: Annotated[int, Flag(parse=at_least_one)] = 1
    seeds: Annotated[tuple[int, ...], Flag(parse=seed_list)] = (1, 2, 3)
    expected_runs: float = 10.0
    out: Path | None = None


def tune(asked: Tuned) -> int:
    """Find the noise, clipping and cohort for a target epsilon."""
    if asked.score_text is not None:
        return _tune_privately(asked, asked.score_text)
    from simulation.tuning.command import tune

    tuned = tune(_tune_request(asked))
    if asked.json:
        print(msgspec.json.encode(tuned).decode())
        return 0
    print((Path(tuned.out) / "tune.md").read_text(), end="")
    for part in (tuned.crowds_text, tuned.settings):
        if part:
            print(f"\n{part}", end="")
    return 0 if tuned.settings else 1


def _tune_privately(asked: Tuned, score_text: Path) -> int:
    from simulation.tuning.private_command import tune_privately

    winner = tune_privately(
        asked.request(),
        score_text=score_text,
        expected_runs=asked.expected_runs,
        target_epsilon=asked.target_epsilon,
        rules=asked.rules.split(","),
        searched=_searched(asked),
    )
    if asked.json:
        print(msgspec.json.encode(winner).decode())
    else:
        print(winner.text, end="")
    return 0


def _tune_request(asked: Tuned) -> "TuneRequest":
    from simulation.tuning.command import TuneRequest

    return TuneRequest(
        run=asked.request(),
        out=asked.out,
        target_epsilon=check_epsilon(asked.target_epsilon, "--target-epsilon"),
        delta=asked.delta,
        population_size=asked.population,
        simulated_cohort=asked.simulated_cohort,
        modes=asked.modes.split(","),
        honest_share=asked.honest_share,
        rules=asked.rules.split(","),
        noise_on=asked.noise_on,
        searched=_searched(asked),
        trial_count=asked.trials,
        batch=asked.batch,
        seeds=asked.seeds,
    )


def _searched(asked: Tuned) -> "dict[str, Dimension]":
    from simulation.tuning.space import parse_dimension

    return dict(parse_dimension(text) for text in asked.search)
