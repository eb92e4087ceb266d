"""The example plugin in simulations: its model, task, rule and method, in processes and in one."""

import json
import pickle
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sotto
from models.networks.flat_parameters import initial_parameters, read_parameters
from models.plugins.parts import Part
from models.settings.plugin import PluginModel
from server.config.federation import ConfigError
from simulation.cli import main
from simulation.config.simulation import config_from
from simulation.runs.distant_run import Parcel, Plugins
from simulation.runs.runner import RunOptions
from simulation.runs.travelling import Changes
from tests.plugin_package import EXAMPLE, EXAMPLE_PLUGIN, install, on_path, use_example

SPAM = tomllib.loads((EXAMPLE / "spam.toml").read_text())


METHOD = """
import msgspec
class Still(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    def personal_names(self, schema):
        return ()
"""
HALF = """
from edge_client.personalisation.method import Learnt
from edge_client.personalisation.plain import PlainHalf
class Half(PlainHalf):
    def __init__(self, settings):
        pass
    def train(self, client):
        return Learnt(0.0, {})
"""


def settings(**tables: Any) -> dict[str, Any]:
    """Return the example's settings with whole tables replaced; None leaves one out."""
    changed = {**SPAM, **tables}
    return {name: table for name, table in changed.items() if table is not None}


@pytest.mark.slow
def test_the_example_learns_what_spam_is_in_worker_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)

    status = main(
        ["run", str(EXAMPLE / "spam.toml"), "--out", str(tmp_path / "run"), "--workers", "2"]
    )

    assert status == 0
    final = json.loads((tmp_path / "run" / "final.json").read_text())
    # A third of the messages are spam, and one label in twenty is wrong: nobody can do better than
    # 0.05 in the mean, and who calls nothing spam is wrong in about 0.35.
    assert final["test_wrong_share"] < 0.15
    assert final["test_wrong_share"] == pytest.approx(1 - final["test_top1_recall"])
    assert final["clients"] == 8


def test_a_plugins_own_rule_moves_each_coordinate_as_far_as_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    rule = {"rule": "plugin", "name": "clamped-mean", "settings": {"largest": 0.05}}

    one, two = (
        sotto.simulate(
            settings(aggregation=rule, rounds={**SPAM["rounds"], "cap": cap}),
            out=tmp_path / str(cap),
        ).model()
        for cap in (1, 2)
    )

    moved = two.state_dict()["hidden.weight"] - one.state_dict()["hidden.weight"]
    # Of 2,048 weights some are pulled one way by all four clients, and further than 0.05.
    assert float(moved.abs().max()) == pytest.approx(0.05, abs=1e-6)


def test_a_plugins_own_method_keeps_what_it_names_with_each_person(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    method = {"method": "plugin", "name": "own-output"}

    run = sotto.simulate(
        settings(personalisation=method, rounds={**SPAM["rounds"], "cap": 1, "cohort_size": 8}),
        out=tmp_path / "run",
    )

    ada, ben = (run.model(f"device-{number:04}").state_dict() for number in (1, 2))
    assert (ada["hidden.weight"] == ben["hidden.weight"]).all()
    assert (ada["output.weight"] != ben["output.weight"]).any()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"plugins": None}, "no loaded plugin has 'word_counts'"),
        ({"plugins": ["sotto-spam-filter==2.0.0"]}, "must be of version 2.0.0, 1.0.0 is installed"),
        ({"plugins": "sotto-spam-filter==1.0.0"}, "Expected `array`, got `str` - at `$.plugins`"),
        ({"task": "ham"}, "task must be one of"),
        ({"vocabulary": {"name": "english-10k", "size": 10}}, 'task "spam" has no words'),
        ({"model": {"family": "plugin", "name": "other"}}, "no loaded plugin has 'other'"),
        (
            {"model": {"family": "plugin", "name": "word_counts", "settings": {"hidden_size": 0}}},
            "hidden_size must be >= 1, got 0",
        ),
        (
            {"model": {"family": "plugin", "name": "word_counts", "settings": {"width": 8}}},
            "settings of word_counts: Object contains unknown field `width`; "
            "there are bucket_count, hidden_size",
        ),
        (
            {"aggregation": {"rule": "plugin", "name": "clamped-mean", "settings": {"large": 1}}},
            "unknown field `large`; did you mean largest?",
        ),
    ],
)
def test_settings_that_no_plugin_has_are_refused_with_file_and_key(
    changes: Mapping[str, Any], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)

    with pytest.raises(ConfigError) as refused:
        config_from(settings(**changes), "spam.toml")

    assert str(refused.value).startswith("spam.toml: ")
    assert told in str(refused.value)


def test_a_file_names_the_plugins_that_it_asks_for_whatever_others_have_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    config_from(SPAM, "spam.toml")

    with pytest.raises(ConfigError, match=f"plugins must name {EXAMPLE_PLUGIN}"):
        config_from(settings(plugins=None), "another.toml")


def test_a_plugins_rule_has_no_proved_sensitivity_and_goes_with_no_guarantee(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    central = {
        "mode": "central",
        "clipping_norm": 1.0,
        "noise_multiplier": 1.0,
        "delta": 1e-3,
        "epsilon_budget": 100.0,
        "adjacency": "zero-out",
    }

    with pytest.raises(ConfigError, match='"plugin" has no proved bound'):
        config_from(
            settings(privacy=central, aggregation={"rule": "plugin", "name": "clamped-mean"}),
            "spam.toml",
        )


def test_a_plugin_that_is_not_installed_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_path(monkeypatch)

    with pytest.raises(ConfigError, match="is not installed; install"):
        config_from(SPAM, "spam.toml")


def test_a_plugins_client_half_decides_how_its_method_trains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "made_up_method.py").write_text(METHOD)
    (tmp_path / "made_up_half.py").write_text(HALF)
    install(
        tmp_path,
        "made-up",
        "1",
        {
            Part.PERSONALISATION: {"still": "made_up_method:Still"},
            Part.CLIENT_HALVES: {"still": "made_up_half:Half"},
        },
    )
    use_example(monkeypatch, tmp_path)

    run = sotto.simulate(
        settings(
            plugins=[EXAMPLE_PLUGIN, "made-up==1"],
            personalisation={"method": "plugin", "name": "still"},
            rounds={**SPAM["rounds"], "cap": 1},
        ),
        out=tmp_path / "run",
    )

    # Nobody trained, so the model is the one that the run's seed draws.
    model = PluginModel(name="word_counts", settings=SPAM["model"]["settings"])
    assert read_parameters(run.model(), model.schema()).equal(initial_parameters(model, 1))


def test_a_clusters_node_loads_the_plugins_before_it_reads_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    config = config_from(SPAM, "spam.toml")
    nothing = Changes({}, {}, {}, frozenset())
    parcel = Parcel(Plugins(config.plugins), config, SPAM, RunOptions(), "run", nothing)
    alone, sent = pickle.dumps(config), pickle.dumps(parcel)
    on_path(monkeypatch)

    with pytest.raises(ValueError, match="not loaded"):
        pickle.loads(alone)  # noqa: S301  # our own bytes
    assert pickle.loads(sent).config == config  # noqa: S301
