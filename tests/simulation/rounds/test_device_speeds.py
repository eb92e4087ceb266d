import math

import pytest
import torch

from simulation.rounds.device_speeds import SpeedSettings, device_seconds


def test_time_follows_from_examples_and_a_slowness_of_the_clients_own() -> None:
    clients = {f"device-{number:04d}": torch.zeros(500) for number in range(400)}
    settings = SpeedSettings(slowest=20.0, examples_per_s=1000.0)

    seconds = device_seconds(settings, clients, local_epochs=2, seed=1)

    # 500 examples twice at 1000 a second take 1 s on the fastest, and up to 20 on the slowest.
    assert all(1 <= took < 20 for took in seconds.values())
    # Logarithms are spread evenly: half are below √20. Outside 0.4 to 0.6 at a chance of 6e-5.
    below = sum(took < math.sqrt(20) for took in seconds.values()) / 400
    assert 0.4 < below < 0.6


def test_a_clients_slowness_depends_on_nobody_else() -> None:
    settings = SpeedSettings(slowest=20.0)
    both = {"one": torch.zeros(10), "two": torch.zeros(10)}

    alone = device_seconds(settings, {"two": torch.zeros(10)}, local_epochs=1, seed=3)

    assert device_seconds(settings, both, local_epochs=1, seed=3)["two"] == alone["two"]
    assert device_seconds(settings, both, local_epochs=1, seed=4)["two"] != alone["two"]


@pytest.mark.parametrize("values", [{"slowest": 0.5}, {"slowest": math.nan}])
def test_speeds_that_mean_nothing_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="slowest must be >= 1 and finite"):
        SpeedSettings(**values)
