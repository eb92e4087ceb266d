"""Search with Optuna for the frontier of epsilon against perplexity, on public data.

The study lies in ``study.db`` (SQLite), so a stopped search goes on with its trial, whose rounds
are kept. Noise modes and rules take turns, so that the picture has a line for each. Epsilon is
known before training, so a trial ends once a better model of its mode and rule at no larger epsilon
is known.

Trials are drawn in batches of a fixed size: a whole batch before the first of it is tried, and it
is judged by what was known before. Results are told to the sampler in the order of the draws. So a
search depends on its settings, and neither on where trials run nor on which of them ends first.

References:
    Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019,
        arXiv:1907.10902.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from privacy.clipping.sensitivity import UnprovedSensitivityError
from simulation.tuning.candidate import Candidate, Kind
from simulation.tuning.early_stop import Bar, HopelessError
from simulation.tuning.measuring import Laboratory, Measurement
from simulation.tuning.measuring import Trial as UnderWay
from simulation.tuning.space import Choices, Dimension, Space, candidate_from

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

STUDY_FILE = "study.db"
_NAME = "sotto"
_MEASURED = "measured"
_STARTING_TRIALS = 8
LARGEST_EPSILON = 1e4
"""Epsilon recorded for a trial whose own is larger: a sampler needs finite numbers."""


def search(
    space: Space,
    laboratory: Laboratory,
    *,
    trial_count: int,
    batch: int = 1,
    folder: Path,
    seed: int,
    after_trial: Callable[[int, str, list[Measurement]], None],
) -> list[Measurement]:
    """Try candidates up to ``trial_count``, earlier calls and trials stopped early included.

    Return the trials measured to the end, in order.

    Args:
        batch: Trials that are drawn before the first of them is tried, at least 1.
        after_trial: Hears how many trials are done, how the last one went, and what was measured.

    Raises:
        ValueError: If the folder holds a search over another space, or trials whose recall was
            counted before words alone.
    """
    study = _study(folder, seed)
    _check_recall(study, laboratory)
    _take_up(study, space)
    bars: Mapping[Kind, Bar] = defaultdict(Bar)
    for one in _measurements(study):
        if one.candidate is not None:
            bars[one.candidate.kind].passed(one.epsilon or 0.0, one.perplexity)
    while (left := trial_count - _finished_count(study)) > 0:
        begun = _begin_batch(study, space, laboratory, bars, min(batch, left))
        for trial, kind, runs in begun:
            line = _finish(study, trial, runs, bars[kind])
            after_trial(_finished_count(study), line, _measurements(study))
    return _measurements(study)


def _study(folder: Path, seed: int) -> "Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=_NAME,
        storage=f"sqlite:///{(folder / STUDY_FILE).absolute()}",
        directions=["minimize", "minimize"],
        load_if_exists=True,
    )
    # The draws of a search that goes on must not repeat those it began with.
    study.sampler = optuna.samplers.TPESampler(
        seed=seed + len(study.trials), n_startup_trials=_STARTING_TRIALS
    )
    return study


def _take_up(study: "Study", space: Space) -> None:
    """Check that the study is of this space, and line up the trial that a stop cut off."""
    from optuna.trial import TrialState

    # Without what is usual, so that a search of before goes on.
    told = space if space.noise_on == "sums" else space[:3]
    described = msgspec.json.encode(told, order="deterministic").decode()
    if study.user_attrs.setdefault("space", described) != described:
        raise ValueError(
            "the folder holds a search over other settings; give another --out, or remove it"
        )
    study.set_user_attr("space", described)
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
        if len(trial.params) == len(space.dimensions) + 2:
            study.enqueue_trial(trial.params)


def _check_recall(study: "Study", laboratory: Laboratory) -> None:
    """Check that recall of new trials may stand beside that of the study's."""
    of_words = "vocabulary" in laboratory.tables
    if of_words and any(one.seeds and one.unknown_words is None for one in _measurements(study)):
        raise ValueError(
            "the folder holds trials whose recall was counted before words alone, and new ones "
            "cannot be compared with them; give another --out, or remove it"
        )


def _begin_batch(
    study: "Study",
    space: Space,
    laboratory: Laboratory,
    bars: Mapping[Kind, Bar],
    size: int,
) -> list["tuple[Trial, Kind, UnderWay | UnprovedSensitivityError]"]:
    """Draw candidates, then start their runs, which see the bars as they are now."""
    first = _finished_count(study)
    drawn = []
    for place in range(size):
        _take_turns(study, space, first + place)
        trial = study.ask()
        drawn.append((trial, _suggested(trial, space)))
    known = copy.deepcopy(dict(bars))
    begun = []
    for trial, candidate in drawn:
        runs: UnderWay | UnprovedSensitivityError
        try:
            runs = laboratory.try_candidate(candidate, known.setdefault(candidate.kind, Bar()))
        except UnprovedSensitivityError as error:
            runs = error
        begun.append((trial, candidate.kind, runs))
    return begun


def _finish(
    study: "Study", trial: "Trial", runs: "UnderWay | UnprovedSensitivityError", bar: Bar
) -> str:
    """Wait for a trial, tell the study, raise the bar, and return what to say of it."""
    from optuna.trial import TrialState

    try:
        if isinstance(runs, UnprovedSensitivityError):
            raise runs
        measured = runs.measure()
    except (HopelessError, UnprovedSensitivityError) as error:
        study.tell(trial, state=TrialState.PRUNED)
        return f"stopped: {error}"
    trial.set_user_attr(_MEASURED, msgspec.json.encode(measured).decode())
    runs.raise_bar(bar, measured)
    study.tell(trial, [min(measured.epsilon or 0.0, LARGEST_EPSILON), measured.perplexity])
    return (
        f"{measured.name}, {measured.rule}: epsilon {measured.epsilon:.3g}, perplexity "
        f"{measured.perplexity:.1f}, top-3 {measured.recall:.1%}"
    )


def _take_turns(study: "Study", space: Space, turn: int) -> None:
    """Line up the mode and rule whose turn it is, unless a trial that was cut off comes first."""
    from optuna.trial import TrialState

    if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        mode, rule = space.kinds[turn % len(space.kinds)]
        study.enqueue_trial({"mode": mode, "rule": rule})


def _suggested(trial: "Trial", space: Space) -> Candidate:
    values: dict[str, Any] = {
        "mode": trial.suggest_categorical("mode", space.modes),
        "rule": trial.suggest_categorical("rule", space.rules),
    }
    for name, dimension in space.dimensions.items():
        values[name] = _suggest(trial, name, dimension)
    return candidate_from(values, space.noise_on)


def _suggest(trial: "Trial", name: str, dimension: Dimension) -> float:
    if isinstance(dimension, Choices):
        return float(trial.suggest_categorical(name, dimension.values) or 0.0)
    return trial.suggest_float(name, dimension.low, dimension.high, log=dimension.is_logarithmic)


def _finished_count(study: "Study") -> int:
    from optuna.trial import TrialState

    return len(study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED)))


def _measurements(study: "Study") -> list[Measurement]:
    from optuna.trial import TrialState

    return [_measurement(trial) for trial in study.get_trials(states=(TrialState.COMPLETE,))]


def _measurement(trial: "FrozenTrial") -> Measurement:
    return msgspec.json.decode(trial.user_attrs[_MEASURED], type=Measurement)
