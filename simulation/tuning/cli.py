"""Read the arguments of ``sotto-simulate tune`` and print what it found."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from privacy.accounting.checked_values import check_epsilon
from privacy.foundation.whole_number_flags import at_least_one, seed_list

if TYPE_CHECKING:
    from simulation.commands.runs import Request
    from simulation.tuning.command import TuneRequest
    from simulation.tuning.space import Dimension

_EXAMPLES = """\
examples:
  what epsilon 8 costs a keyboard of a million people, a thousand of them a round:
    sotto-simulate tune keyboard-sms --public --target-epsilon 8 \\
      --population 1000000 --simulated-cohort 1000 --trials 40 --seeds 1,2,3
  all noise modes, with the multiplier between 0.5 and 8:
    sotto-simulate tune keyboard-tiny --public --target-epsilon 8 \\
      --modes central,local,ftrl --search noise_multiplier=0.5..8
  on private data, compared on a public text:
    sotto-simulate tune keyboard-central --target-epsilon 8 --score-text public.txt \\
      --set privacy.noise_multiplier=3
"""


def add_tune(tune: argparse.ArgumentParser) -> None:
    """Add what only ``tune`` takes; what it shares with ``run`` is there already."""
    # One idea: the flags of one command, one after the other.
    tune.epilog = _EXAMPLES
    tune.formatter_class = argparse.RawDescriptionHelpFormatter
    data = tune.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--public",
        action="store_true",
        help="nobody's text here is private: search with Optuna, and show every trial",
    )
    data.add_argument(
        "--score-text",
        type=Path,
        metavar="FILE",
        help="the data is private: a random number of runs, compared on this public text; only "
        "the best is shown, and its epsilon counts the search",
    )
    tune.add_argument(
        "--target-epsilon",
        type=float,
        required=True,
        help="epsilon of the whole deployment; on private data, of the whole search",
    )
    tune.add_argument("--delta", type=float, help="delta of the deployment (default: N^-1.1)")
    tune.add_argument(
        "--population",
        type=int,
        help="people enrolled in the deployment, N (default: the clients at hand)",
    )
    tune.add_argument(
        "--simulated-cohort",
        type=int,
        metavar="PEOPLE",
        help="people a deployed round expects: noise is that of such a cohort, added to the mean "
        "of the clients at hand, and results are labelled extrapolated",
    )
    tune.add_argument(
        "--modes", default="central", help="noise modes, with commas: central, local, ftrl"
    )
    tune.add_argument("--rules", default="mean,attentive", help="rules (default: %(default)s)")
    tune.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="NAME=LOW..HIGH",
        help="range or list of noise_multiplier, clipping_norm (parameter units), "
        "attention_strength, cohort (people) or server_step_size; may be repeated",
    )
    tune.add_argument(
        "--trials", type=at_least_one, default=40, help="trials in all (default: %(default)s)"
    )
    tune.add_argument(
        "--seeds",
        type=seed_list,
        default="1,2,3",
        help="seeds of a trial, with commas between them (default: %(default)s)",
    )
    tune.add_argument(
        "--expected-runs",
        type=float,
        default=10.0,
        help="mean of the random number of runs on private data (default: 10)",
    )
    tune.add_argument("--out", type=Path, help="folder of the search (default: runs/NAME-tune)")


def run_tune(arguments: argparse.Namespace, request: "Request") -> int:
    """Search and print the recommendation."""
    if arguments.score_text is not None:
        return _run_private(arguments, request)
    from simulation.tuning.command import tune

    tuned = tune(_tune_request(arguments, request))
    if arguments.json:
        print(msgspec.json.encode(tuned).decode())
        return 0
    print((Path(tuned.out) / "tune.md").read_text(), end="")
    for part in (tuned.crowds_text, tuned.settings):
        if part:
            print(f"\n{part}", end="")
    return 0 if tuned.settings else 1


def _run_private(arguments: argparse.Namespace, request: "Request") -> int:
    from simulation.tuning.private_command import tune_privately

    winner = tune_privately(
        request,
        score_text=arguments.score_text,
        expected_runs=arguments.expected_runs,
        target_epsilon=arguments.target_epsilon,
        rules=arguments.rules.split(","),
        searched=_searched(arguments),
    )
    if arguments.json:
        print(msgspec.json.encode(winner).decode())
    else:
        print(winner.text, end="")
    return 0


def _tune_request(arguments: argparse.Namespace, request: "Request") -> "TuneRequest":
    from simulation.tuning.command import TuneRequest

    return TuneRequest(
        run=request,
        out=arguments.out,
        target_epsilon=check_epsilon(arguments.target_epsilon, "--target-epsilon"),
        delta=arguments.delta,
        population_size=arguments.population,
        simulated_cohort=arguments.simulated_cohort,
        modes=arguments.modes.split(","),
        rules=arguments.rules.split(","),
        searched=_searched(arguments),
        trial_count=arguments.trials,
        seeds=arguments.seeds,
    )


def _searched(arguments: argparse.Namespace) -> "dict[str, Dimension]":
    from simulation.tuning.space import parse_dimension

    return dict(parse_dimension(text) for text in arguments.search)
