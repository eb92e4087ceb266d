"""Search with Optuna for the frontier of epsilon against perplexity, on public data.

The study lies in ``study.db`` (SQLite), so a stopped search goes on with its trial, whose rounds
are kept. Noise modes and rules take turns, so that the picture has a line for each. Epsilon is
known before training, so a trial ends once a better model of its mode and rule at no larger epsilon
is known.

References:
    Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019,
        arXiv:1907.10902.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from privacy.clipping.sensitivity import UnprovedSensitivityError
from simulation.tuning.candidate import Candidate, Kind
from simulation.tuning.early_stop import Bar, HopelessError
from simulation.tuning.measuring import Laboratory, Measurement
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
    folder: Path,
    seed: int,
    after_trial: Callable[[list[Measurement]], None],
) -> list[Measurement]:
    """Try candidates up to ``trial_count``, earlier calls and trials stopped early included.

    Return the trials measured to the end, in order; ``after_trial`` gets all so far.

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
    while _finished_count(study) < trial_count:
        line = _one_trial(study, space, laboratory, bars)
        laboratory.progress.trial_finished(_finished_count(study), line)
        after_trial(_measurements(study))
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


def _one_trial(
    study: "Study", space: Space, laboratory: Laboratory, bars: Mapping[Kind, Bar]
) -> str:
    """Ask for a candidate, try it, tell the study, and return what to say of it."""
    from optuna.trial import TrialState

    _take_turns(study, space)
    trial = study.ask()
    candidate = _suggested(trial, space)
    bar = bars[candidate.kind]
    try:
        measured = laboratory.try_candidate(candidate, bar)
    except (HopelessError, UnprovedSensitivityError) as error:
        study.tell(trial, state=TrialState.PRUNED)
        return f"stopped: {error}"
    trial.set_user_attr(_MEASURED, msgspec.json.encode(measured).decode())
    bar.passed(measured.epsilon or 0.0, measured.perplexity)
    study.tell(trial, [min(measured.epsilon or 0.0, LARGEST_EPSILON), measured.perplexity])
    return (
        f"{measured.name}, {measured.rule}: epsilon {measured.epsilon:.3g}, perplexity "
        f"{measured.perplexity:.1f}, top-3 {measured.recall:.1%}"
    )


def _take_turns(study: "Study", space: Space) -> None:
    """Line up the next mode and rule, unless a trial that was cut off comes first."""
    from optuna.trial import TrialState

    if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        mode, rule = space.kinds[_finished_count(study) % len(space.kinds)]
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
