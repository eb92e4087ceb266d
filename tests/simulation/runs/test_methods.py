from typing import Any

import msgspec
import pytest

from models.settings.personalisation import (
    FedTpSettings,
    GlobalSettings,
    NeighbourSettings,
    PersonalisationSettings,
)
from simulation.runs.methods import METHOD_NAMES, method_table


def settings_of(name: str, tables: dict[str, Any] | None = None) -> PersonalisationSettings:
    settings: PersonalisationSettings = msgspec.convert(
        method_table(name, tables or {}), PersonalisationSettings
    )
    return settings


def test_every_name_stands_for_settings() -> None:
    methods = {settings_of(name).method for name in METHOD_NAMES}

    assert len(methods) == 14
    assert settings_of("fedavg") == GlobalSettings()
    assert settings_of("fedtp-fedper") == FedTpSettings(head="personal")
    assert settings_of("fedtp-fedrod") == FedTpSettings(head="balanced")
    assert settings_of("fedtp-knn") == FedTpSettings(neighbours=NeighbourSettings())


def test_options_of_the_same_method_stay_and_those_of_another_go() -> None:
    tables = {"personalisation": {"method": "fedtp", "hypernetwork": {"embedding_size": 8}}}

    kept = settings_of("fedtp-fedper", tables)

    assert isinstance(kept, FedTpSettings)
    assert (kept.head, kept.hypernetwork.embedding_size) == ("personal", 8)
    assert settings_of("fedavg", tables) == GlobalSettings()


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"one of .*fedtp-knn.*, got 'fedtp2'"):
        method_table("fedtp2", {})
