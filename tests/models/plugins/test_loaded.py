"""Plugins are loaded by name and version from a file's own list, and by nothing else."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.plugins.loaded import check_named, has_part, load_plugins, names_of, part_of
from models.plugins.names import PluginError, plugin_name, plugin_names
from models.plugins.parts import TAKEN, Part
from models.settings.model import ModelSettings
from models.settings.personalisation import PersonalisationSettings
from models.settings.plugin import PluginModel
from models.tasks.registry import TASKS
from server.aggregation.settings import AggregationSettings
from tests.plugin_package import (
    EXAMPLE_PLUGIN,
    EntryPoints,
    install,
    install_example,
    on_path,
    use_example,
)

SETTINGS = """
import msgspec
from models.vector.schema import Schema, TensorSpec
class Settings(msgspec.Struct, forbid_unknown_fields=True):
    def schema(self):
        return Schema((TensorSpec(name="a.b", shape=(1,), layer="a"),))
"""


def make_plugin(
    monkeypatch: pytest.MonkeyPatch, folder: Path, code: str, entry_points: EntryPoints
) -> None:
    """Install ``made-up==1`` with one module, ``made_up_plugin``, for this test."""
    (folder / "made_up_plugin.py").write_text(code)
    install(folder, "made-up", "1", entry_points)
    on_path(monkeypatch, folder)
    monkeypatch.delitem(sys.modules, "made_up_plugin", raising=False)


def tags(union: object) -> set[str]:
    return {kind.__struct_config__.tag for kind in getattr(union, "__args__", ())}


def test_names_that_plugins_may_not_have_are_those_of_the_registries() -> None:
    assert TAKEN[Part.MODELS] == tags(ModelSettings)
    assert TAKEN[Part.TASKS] == TASKS.keys()
    assert TAKEN[Part.AGGREGATION] == tags(AggregationSettings)
    assert TAKEN[Part.PERSONALISATION] == tags(PersonalisationSettings)


@pytest.mark.parametrize(
    "written", ["spam", "spam==", "spam>=1", "spam==1 ; x", "../x==1", "a==1==2", "", "a b==1"]
)
def test_what_is_no_package_with_one_version_is_refused(written: str) -> None:
    with pytest.raises(PluginError, match="packages with one version each"):
        plugin_name(written)


@given(st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9._=-]{1,120}", fullmatch=True))
def test_any_text_is_refused_or_reads_back_as_itself(written: str) -> None:
    try:
        name = plugin_name(written)
    except PluginError as error:
        assert len(str(error)) < 800
    else:
        assert plugin_name(str(name)) == name


def test_a_package_is_one_however_its_name_is_written_and_named_once() -> None:
    assert str(plugin_name("Spam._Filter==1.0")) == "spam-filter==1.0"
    with pytest.raises(PluginError, match="more than once"):
        plugin_names(["spam-filter==1", "spam_filter==2"])


def test_nothing_is_imported_by_being_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_plugin(monkeypatch, tmp_path, SETTINGS, {Part.MODELS: {"own": "made_up_plugin:Settings"}})

    assert not has_part(Part.MODELS, "own")
    with pytest.raises(PluginError, match=r"no loaded plugin has 'own'"):
        PluginModel(name="own").schema()
    assert "made_up_plugin" not in sys.modules

    named = load_plugins(["made-up==1"])

    assert names_of(Part.MODELS, named) == ("own",)
    assert PluginModel(name="own").schema().element_count == 1
    with pytest.raises(PluginError, match=r"plugins must name made-up==1.*got \[\]"):
        check_named(Part.MODELS, "own", ())


def test_a_plugin_of_another_version_or_none_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_example(tmp_path, version="1.0.1")
    on_path(monkeypatch, tmp_path)

    with pytest.raises(PluginError, match=r"version 1\.0\.0, 1\.0\.1 is installed; install"):
        load_plugins([EXAMPLE_PLUGIN])
    with pytest.raises(PluginError, match="not-there==1 is not installed"):
        load_plugins(["not-there==1"])
    with pytest.raises(PluginError, match="no plugin"):
        load_plugins(["msgspec==" + __import__("importlib.metadata").metadata.version("msgspec")])


@pytest.mark.parametrize("statement", ["1 / 0", "raise SystemExit(3)", "import nothing_such"])
def test_a_plugin_that_raises_at_import_is_told_of_in_one_line(
    statement: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_plugin(monkeypatch, tmp_path, statement, {Part.MODELS: {"own": "made_up_plugin:Settings"}})

    with pytest.raises(PluginError, match=r"made-up==1 cannot be imported \(made_up_plugin"):
        load_plugins(["made-up==1"])
    assert not has_part(Part.MODELS, "own")


def test_a_name_that_sotto_or_another_plugin_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for part, taken in (
        (Part.MODELS, "gru_lm"),
        (Part.TASKS, "speech"),
        (Part.AGGREGATION, "mean"),
    ):
        site = tmp_path / taken
        site.mkdir()
        make_plugin(monkeypatch, site, SETTINGS, {part: {taken: "made_up_plugin:Settings"}})
        with pytest.raises(PluginError, match=f"has '{taken}' in {part}, and sotto has one"):
            load_plugins(["made-up==1"])
        assert "made_up_plugin" not in sys.modules

    site = tmp_path / "both"
    site.mkdir()
    make_plugin(monkeypatch, site, SETTINGS, {Part.MODELS: {"own": "made_up_plugin:Settings"}})
    install(site, "another", "2", {Part.MODELS: {"own": "made_up_plugin:Settings"}})
    load_plugins(["made-up==1"])
    with pytest.raises(PluginError, match=r"made-up==1 and another==2 both have 'own'"):
        load_plugins(["another==2"])


def test_two_entry_points_of_one_name_in_one_plugin_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_plugin(monkeypatch, tmp_path, SETTINGS, {Part.MODELS: {"own": "made_up_plugin:Settings"}})
    entries = tmp_path / "made_up-1.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text() + "own = made_up_plugin:Other\n")

    with pytest.raises(PluginError, match="two entry points 'own'"):
        load_plugins(["made-up==1"])


def test_a_network_belongs_to_settings_of_the_same_plugin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_plugin(monkeypatch, tmp_path, SETTINGS, {Part.NETWORKS: {"own": "made_up_plugin:Net"}})

    with pytest.raises(PluginError, match="without its settings in"):
        load_plugins(["made-up==1"])


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("Settings = 3", "must have a msgspec.Struct of settings"),
        (SETTINGS.replace(", forbid_unknown_fields=True", ""), "with forbid_unknown_fields=True"),
        (SETTINGS.replace("return Schema", "return 1 / 0 * Schema"), "raised ZeroDivisionError"),
        (SETTINGS.replace("return Schema", "return None; Schema"), "schema of shared tensors"),
    ],
)
def test_settings_that_are_none_or_break_are_told_of(
    code: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_plugin(monkeypatch, tmp_path, code, {Part.MODELS: {"own": "made_up_plugin:Settings"}})

    with pytest.raises(PluginError, match=told):
        load_plugins(["made-up==1"])
        PluginModel(name="own").schema()


def test_settings_are_decoded_strictly_by_the_plugins_own_struct(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    load_plugins([EXAMPLE_PLUGIN])

    for settings, told in (
        ({"bucket_count": 1.5}, "Expected `int`, got `float`"),
        ({"bucket_count": 0}, "bucket_count must be >= 1, got 0"),
        ({"buckets": 3}, "unknown field `buckets`"),
    ):
        with pytest.raises(PluginError, match=told):
            PluginModel(name="word_counts", settings=settings).schema()
    # 4 buckets to 3 units and their biases, 3 units to 2 classes and their biases: 15 + 8.
    own = PluginModel(name="word_counts", settings={"bucket_count": 4, "hidden_size": 3})
    assert own.schema().element_count == 23
    assert part_of(Part.TASKS, "spam").figures is not None


def test_settings_that_import_torch_are_refused_where_a_device_rests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = f"import torch\n{SETTINGS}"
    make_plugin(monkeypatch, tmp_path, code, {Part.MODELS: {"own": "made_up_plugin:Settings"}})
    # A process without torch, and a torch that costs nothing to import.
    (tmp_path / "torch.py").write_text("")
    monkeypatch.delitem(sys.modules, "torch")

    with pytest.raises(PluginError, match="imports torch with made_up_plugin:Settings"):
        load_plugins(["made-up==1"])
