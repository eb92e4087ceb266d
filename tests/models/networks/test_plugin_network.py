"""A plugin's network has the tensors that the plugin's schema has, or is refused."""

import sys
from pathlib import Path

import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from models.networks.registry import build_network
from models.plugins.loaded import load_plugins
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.plugin import PluginModel
from tests.plugin_package import EXAMPLE_PLUGIN, install, on_path, use_example

SETTINGS = """
import msgspec
from models.vector.schema import Schema, TensorSpec
class Settings(msgspec.Struct, forbid_unknown_fields=True):
    def schema(self):
        return Schema((TensorSpec(name="layer.weight", shape=(2, 3), layer="layer"),))
"""
NETWORK = """
from torch import nn
from models.networks.plugin_network import PluginNetwork
class Network(PluginNetwork):
    def __init__(self, settings):
        super().__init__()
        self.layer = nn.Linear({arguments})
"""


def build(monkeypatch: pytest.MonkeyPatch, folder: Path, network: str) -> None:
    (folder / "made_up_settings.py").write_text(SETTINGS)
    (folder / "made_up_network.py").write_text(network)
    install(
        folder,
        "made-up",
        "1",
        {
            Part.MODELS: {"own": "made_up_settings:Settings"},
            Part.NETWORKS: {"own": "made_up_network:Network"},
        },
    )
    on_path(monkeypatch, folder)
    for module in ("made_up_settings", "made_up_network"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    load_plugins(["made-up==1"])
    build_network(PluginModel(name="own"))


def test_a_network_with_the_schemas_tensors_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build(monkeypatch, tmp_path, NETWORK.format(arguments="3, 2, bias=False"))


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (NETWORK.format(arguments="3, 2"), r"these differ: layer\.bias"),
        (NETWORK.format(arguments="2, 3, bias=False"), r"these differ: layer\.weight$"),
        (NETWORK.format(arguments="1 // 0, 2"), "raised ZeroDivisionError"),
        ("Network = dict", "must make a PluginNetwork|raised TypeError"),
        ("import nothing_such", "cannot be imported"),
    ],
)
def test_a_network_that_is_none_or_has_other_tensors_is_refused(
    network: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(PluginError, match=told):
        build(monkeypatch, tmp_path, network)


def test_first_parameters_follow_from_the_seed_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_example(monkeypatch, tmp_path)
    load_plugins([EXAMPLE_PLUGIN])
    model = PluginModel(name="word_counts", settings={"bucket_count": 4, "hidden_size": 3})

    drawn = initial_parameters(model, 1)

    assert drawn.equal(initial_parameters(model, 1))
    assert not drawn.equal(initial_parameters(model, 2))
    # A layer of 4 inputs is drawn from U(-1/2, 1/2): 15 numbers, before 8 of 3 inputs.
    assert float(drawn[:15].abs().max()) <= 0.5
    assert drawn.shape == torch.Size([23])
