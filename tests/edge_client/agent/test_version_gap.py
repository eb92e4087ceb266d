"""Two ends that do not agree are told which of them to update."""

import pytest

from edge_client.agent import version_gap as module
from edge_client.agent.version_gap import older_side


@pytest.mark.parametrize(
    ("coordinator", "said"),
    [
        ("0.9.9", "runs sotto 0.9.9 and this device sotto 0.10.0: the coordinator is older"),
        ("0.10", "the coordinator is older"),
        ("0.10.1", "this device is older"),
        ("1.0.0.dev1", "this device is older"),
        ("", "does not tell its version and this device sotto 0.10.0: the coordinator is older"),
        ("0.10.0", "both say that they are sotto 0.10.0"),
    ],
)
def test_the_older_of_two_versions_is_named(
    monkeypatch: pytest.MonkeyPatch, coordinator: str, said: str
) -> None:
    monkeypatch.setattr(module, "VERSION", "0.10.0")

    assert said in older_side(coordinator)
