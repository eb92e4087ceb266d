"""Describe the flags of ``sotto-privacy epsilon``, ``noise``, ``sensitivity`` and ``explain``.

No flag that decides privacy has a default, and a flag that would have no effect is refused.
"""

import argparse
from pathlib import Path
from typing import Literal, get_args

from privacy.clipping.sensitivity import Adjacency

Commands = argparse._SubParsersAction  # argparse gives the type no public name.
Mode = Literal["ftrl", "central"]
Source = Mode | Literal["ledger", "plan"]

_ALLOWED: dict[Source, frozenset[str]] = {
    "ledger": frozenset({"ledger", "plan", "delta", "run", "head"}),
    "plan": frozenset({"plan"}),
    "ftrl": frozenset(
        {
            "mode",
            "noise_multiplier",
            "rounds",
            "delta",
            "min_separation",
            "max_participation",
            "restart_rounds",
        }
    ),
    "central": frozenset(
        {"mode", "noise_multiplier", "rounds", "delta", "sampling_rate", "population"}
    ),
}
_OTHERS = frozenset({"command", "json", "second_opinion"})
_CALIBRATED: dict[Mode, frozenset[str]] = {
    # What noise is asked for: a target instead of a noise multiplier.
    "ftrl": (_ALLOWED["ftrl"] - {"noise_multiplier"}) | {"target_epsilon"},
    "central": frozenset({"mode", "target_epsilon", "rounds", "delta", "sampling_rate"}),
}


class UsageError(Exception):
    """Raised when flags do not go together."""


def source_of(arguments: argparse.Namespace) -> Source:
    """Return what ``epsilon`` is asked about, after checking that every flag belongs to it.

    Raises:
        UsageError: If one does not.
    """
    source: Source = _mode(arguments)
    if arguments.ledger is not None:
        source = "ledger"
    elif arguments.plan is not None:
        source = "plan"
    _check_effect(arguments, _ALLOWED[source], source)
    return source


def mode_of(arguments: argparse.Namespace) -> Mode:
    """Return for which mode ``noise`` is asked, after checking that every flag belongs to it.

    Raises:
        UsageError: If one does not.
    """
    mode = _mode(arguments)
    _check_effect(arguments, _CALIBRATED[mode], mode)
    return mode


def _mode(arguments: argparse.Namespace) -> Mode:
    return "ftrl" if arguments.mode == "ftrl" else "central"


def _check_effect(arguments: argparse.Namespace, allowed: frozenset[str], source: Source) -> None:
    given = {name for name, value in vars(arguments).items() if value is not None} - _OTHERS
    for name in sorted(given - allowed):
        flag = "PLAN" if name == "plan" else "--" + name.replace("_", "-")
        raise UsageError(f"{flag} has no effect for {_IN_WORDS[source]}")


_IN_WORDS: dict[Source, str] = {
    "ledger": "a ledger, which says itself what was released",
    "plan": "a plan, which says so itself",
    "ftrl": "trees, which assume nothing about who takes part when",
    "central": "cohorts drawn by coins",
}


def add_epsilon(commands: "Commands[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add the flags of ``epsilon``."""
    parser = commands.add_parser(
        "epsilon",
        help="compute what a plan, a setting or a ledger costs",
        description="Compute epsilon of one enrolled person over a whole run, evaluations by "
        "devices included, with two "
        "accountants, and refuse where they differ by more than max(0.02, 1 %). Ask about a "
        "federation's file, about a setting given by flags, or about a ledger. --json has "
        "epsilon, epsilon_pld, epsilon_prv, rho and delta; null where one does not apply or "
        "nothing bounds it.",
        allow_abbrev=False,
    )
    parser.add_argument("plan", type=Path, nargs="?", metavar="PLAN", help="federation TOML file")
    _add_noise_multiplier(parser)
    _add_run(parser)
    parser.add_argument(
        "--population",
        type=int,
        metavar="N",
        help="enrolled people; with it places are fixed, and their tail is part of delta",
    )
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="a coordinator's SQLite store or `sotto-server ledger --json`; its chain is checked",
    )
    parser.add_argument("--run", metavar="HEX", help="run the ledger must be of, 32 hex digits")
    parser.add_argument(
        "--head", metavar="HEX", help="digest its newest entry must have, 64 hex digits"
    )
    parser.add_argument(
        "--second-opinion",
        default="prv",
        metavar="NAME",
        help="second accountant (default and only sound one: %(default)s)",
    )
    return _with_json(parser)


def add_noise(commands: "Commands[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add the flags of ``noise``."""
    parser = commands.add_parser(
        "noise",
        help="find the least noise for a target epsilon",
        description="Find the least noise multiplier that keeps a run within epsilon at delta; "
        "with --mode ftrl that of each node of the tree.",
        allow_abbrev=False,
    )
    parser.add_argument("--target-epsilon", type=float, metavar="E", help="of the whole run")
    _add_run(parser)
    return _with_json(parser)


def add_sensitivity(commands: "Commands[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add the flags of ``sensitivity``."""
    parser = commands.add_parser(
        "sensitivity",
        help="compute how far one person moves the attentive aggregate",
        description="Compute the L2 sensitivity of the step under attentive aggregation, in "
        "parameter units, and what attention adds to the noise of equal weights.",
        allow_abbrev=False,
    )
    parser.add_argument("--cohort", type=int, required=True, metavar="M", help="places of a round")
    parser.add_argument(
        "--attention-strength",
        type=float,
        required=True,
        metavar="K",
        help="largest ratio of two weights is e^K; 0 is equal weights; no unit",
    )
    parser.add_argument(
        "--clipping-norm",
        type=float,
        required=True,
        metavar="C",
        help="largest L2 norm of an update over all layers, in parameter units",
    )
    parser.add_argument(
        "--adjacency", choices=get_args(Adjacency), default="zero-out", help="what neighbours are"
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=1,
        metavar="L",
        help="layers weighed apart under the one clip (default: %(default)s)",
    )
    parser.add_argument(
        "--server-step-size",
        type=float,
        default=1.0,
        metavar="STEP",
        help="what the aggregate is multiplied by (default: %(default)s)",
    )
    return _with_json(parser)


def add_explain(commands: "Commands[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add the flags of ``explain``."""
    parser = commands.add_parser(
        "explain",
        help="say in plain words what a plan promises",
        description="Say in plain words what a federation's file promises: the unit of privacy, "
        "neighbours, the draw, epsilon of a round and of the run, what the noise comes to, and "
        "what evaluations by devices cost and how far their noise moves a perplexity.",
        allow_abbrev=False,
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="federation TOML file")
    return _with_json(parser)


def _add_noise_multiplier(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--noise-multiplier",
        type=float,
        metavar="Z",
        help="noise standard deviation over L2 sensitivity; no unit",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", choices=("central", "ftrl"), help="noise mode (default: central)")
    parser.add_argument("--rounds", type=int, metavar="T", help="rounds of the whole run")
    parser.add_argument(
        "--sampling-rate",
        type=float,
        metavar="Q",
        help="chance of one person in one round, in (0, 1]; 1 where devices choose themselves",
    )
    parser.add_argument(
        "--delta", type=float, metavar="D", help="chance that the bound fails, over the whole run"
    )
    parser.add_argument(
        "--min-separation",
        type=int,
        metavar="ROUNDS",
        help="ftrl: least distance of two rounds of one person, in rounds; 1 is every round",
    )
    parser.add_argument(
        "--max-participation", type=int, metavar="ROUNDS", help="ftrl: most rounds of one person"
    )
    parser.add_argument(
        "--restart-rounds",
        type=int,
        metavar="ROUNDS",
        help="ftrl: rounds of one tree (default: all)",
    )


def _with_json(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
