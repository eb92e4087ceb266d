"""A plan makes a device import nothing that its floor does not name, whatever it says."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_client.agent.acceptance import PlanRefusedError, accept_plan
from edge_client.child.work import do_job
from edge_client.jobs.job import Failed
from edge_client.owner.floor import Floor, FloorError, read_floor
from edge_client.owner.traffic import Traffic
from models.plan.plan import Plan, PlanError, decode_plan
from models.plan.roles import assign_roles
from models.plugins.loaded import load_plugins
from models.plugins.parts import Part
from models.settings.model import schema_of
from models.settings.personalisation import PluginMethod
from models.settings.plugin import PluginModel
from protos import federation_pb2 as wire
from tests.edge_client.job_scene import Scene, enrol_device
from tests.edge_client.stand_ins import FLOOR, make_lease, shipped_plan
from tests.plugin_package import EXAMPLE, EXAMPLE_PLUGIN, install, install_example, on_path

NAMING = msgspec.structs.replace(FLOOR, plugins=(EXAMPLE_PLUGIN,))


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    return Traffic(tmp_path / "traffic.json", clock=lambda: 0.0)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Return a plan of the example; the plugin is installed, and loaded by nobody here."""
    install_example(tmp_path)
    on_path(monkeypatch, EXAMPLE, tmp_path)
    load_plugins([EXAMPLE_PLUGIN])
    model = PluginModel(name="word_counts", settings={"bucket_count": 4, "hidden_size": 2})
    made = shipped_plan(
        model=model,
        task="spam",
        vocabulary=None,
        plugins=(EXAMPLE_PLUGIN,),
        schema_sha256=model.schema().sha256.hex(),
    )
    on_path(monkeypatch)
    return made


def changed(plan: Plan, **fields: Any) -> wire.Lease:
    """Return a lease of a plan as a hostile coordinator writes it: None leaves a field out."""
    whole = msgspec.json.decode(plan.encode()) | fields
    return make_lease(
        msgspec.json.encode({name: value for name, value in whole.items() if value is not None}),
        download_bytes=1,
        upload_bytes=1,
    )


def refusal(lease: wire.Lease, floor: Floor, traffic: Traffic) -> tuple[str, str]:
    with pytest.raises(PlanRefusedError) as refused:
        accept_plan(lease, floor, traffic)
    return refused.value.code, str(refused.value)


def test_a_plan_of_a_plugin_that_the_floor_names_is_accepted(plan: Plan, traffic: Traffic) -> None:
    load_plugins(NAMING.plugins)

    # Its family need not stand in model_families: the plugin does in plugins.
    assert accept_plan(changed(plan), NAMING, traffic) == plan
    assert plan.named_plugins == (EXAMPLE_PLUGIN,)


def test_a_plugins_method_opens_no_family_that_the_floor_does_not_name(
    plan: Plan, traffic: Traffic
) -> None:
    load_plugins(NAMING.plugins)
    own = shipped_plan()
    method = PluginMethod(name="own-output")
    roles = assign_roles(method, schema_of(own.model))
    lease = make_lease(
        msgspec.structs.replace(
            own,
            personalisation=method,
            plugins=(EXAMPLE_PLUGIN,),
            schema_sha256=roles.sha256.hex(),
        )
    )

    accept_plan(lease, NAMING, traffic)

    floor = msgspec.structs.replace(NAMING, model_families=frozenset({"vit"}))
    assert refusal(lease, floor, traffic)[0] == "floor_model_family"
    floor = msgspec.structs.replace(NAMING, methods=frozenset({"global"}))
    assert refusal(lease, floor, traffic)[0] == "floor_method"


@pytest.mark.parametrize("named", [EXAMPLE_PLUGIN, "made-up==1", "nobody-has-this==3"])
def test_a_plan_that_names_what_the_floor_does_not_imports_nothing(
    named: str,
    plan: Plan,
    traffic: Traffic,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "made_up_trap.py").write_text("raise SystemExit('imported')")
    install(tmp_path, "made-up", "1", {Part.MODELS: {"word_counts": "made_up_trap:Settings"}})
    for module in [name for name in sys.modules if name.startswith("spam_filter")]:
        monkeypatch.delitem(sys.modules, module)

    code, told = refusal(changed(plan, plugins=[named]), FLOOR, traffic)

    assert code == "floor_plugin"
    assert f'set plugins = ["{named}"], in floor.toml' in told
    assert not {"made_up_trap", "spam_filter"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        (
            {"plugins": ["sotto-spam-filter==2.0.0"]},
            "floor_plugin",
            "the floor names version 1.0.0",
        ),
        ({"plugins": None}, "plan_unreadable", f"plugins must name {EXAMPLE_PLUGIN}"),
        ({"plugins": "spam"}, "plan_unreadable", "Expected `array"),
        ({"plugins": ["../evil"]}, "plan_unreadable", "packages with one version each"),
        ({"plugins": [f"p{n}==1" for n in range(17)]}, "plan_unreadable", "at most 16, got 17"),
        (
            {"model": {"family": "plugin", "name": "os"}},
            "plan_unreadable",
            "no loaded plugin has 'os'",
        ),
        ({"schema_sha256": "00" * 32}, "schema_mismatch", "differ under one version: install"),
        (
            {"model": {"family": "plugin", "name": "word_counts", "settings": {"hidden_size": 0}}},
            "plan_unreadable",
            "hidden_size must be >= 1",
        ),
        (
            {
                "model": {
                    "family": "plugin",
                    "name": "word_counts",
                    "settings": {"bucket_count": 1 << 40},
                }
            },
            "plan_unreadable",
            "model.settings.bucket_count must be <= 65536",
        ),
        (
            {"personalisation": {"method": "plugin", "name": "own-output", "settings": {"x": 1}}},
            "plan_unreadable",
            "unknown field `x`",
        ),
    ],
)
def test_a_plan_that_does_not_fit_the_named_plugin_is_refused(
    fields: dict[str, Any], code: str, said: str, plan: Plan, traffic: Traffic
) -> None:
    load_plugins(NAMING.plugins)

    told = refusal(changed(plan, **fields), NAMING, traffic)

    assert told[0] == code
    assert said in told[1]


def test_the_training_process_imports_what_the_floor_names_now_and_no_more(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, enrol_device(tmp_path / "enrolled"))
    job = msgspec.structs.replace(scene.job(), plan=plan.encode())
    floor = scene.device / "floor.toml"
    text = floor.read_text()

    outcome = do_job(job)

    assert isinstance(outcome, Failed)
    assert outcome.code == "plan_unreadable"
    assert "plugin sotto-spam-filter==1.0.0 is not loaded here" in outcome.reason
    floor.write_text(f'plugins = ["not-there==1"]\n{text}')
    outcome = do_job(job)
    assert isinstance(outcome, Failed)
    assert outcome.code == "plugin_unusable"
    assert "not-there==1 is not installed" in outcome.reason
    with pytest.raises(PlanError, match="not loaded"):
        decode_plan(plan.encode())


def test_a_floor_with_what_is_no_plugin_cannot_be_used(tmp_path: Path) -> None:
    floor = tmp_path / "floor.toml"
    floor.write_text(
        'modes = ["none"]\nlargest_clipping_norm = "any"\nleast_cohort = 1\n'
        'model_families = []\nplugins = ["spam-filter"]\n'
    )

    with pytest.raises(FloorError, match="packages with one version each"):
        read_floor(floor)
