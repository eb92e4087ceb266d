from collections.abc import Callable

import torch

from models.compression.release_delta import encode_delta
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.rounds.downlink_bytes import DownlinkBytes

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]
STEP = 2.0**-10


def test_who_stayed_away_for_longer_than_ways_are_offered_fetches_a_whole_model(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(
        'compression={uplink="none", downlink="delta", downlink_step=0.0009765625, '
        "downlink_releases=2}"
    )
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    generator = torch.Generator().manual_seed(0)
    # Hundreds of steps from zero, and up to three steps from one release to the next.
    counts = torch.randint(-999, 1000, (config.schema.element_count,), generator=generator)
    releases = {}
    for number in range(1, 6):
        releases[number] = counts * STEP
        counts = counts + torch.randint(-3, 4, counts.shape, generator=generator)

    def way(held: int | None, number: int) -> int:
        base = None if held is None else releases[held].numpy()
        return len(encode_delta(config.schema, base, releases[number].numpy(), STEP))

    downlink = DownlinkBytes(plan)
    fetched = []
    for number, names in enumerate(("abc", "a", "b", "ac", "abc"), start=1):
        downlink.start_round(number, releases[number])
        fetched.append({name: downlink.take(name) for name in names})

    assert fetched == [
        {"a": way(None, 1), "b": way(None, 1), "c": way(None, 1)},
        {"a": way(1, 2)},
        {"b": way(1, 3)},
        # Two releases back is offered, three is not.
        {"a": way(2, 4), "c": way(None, 4)},
        {"a": way(4, 5), "b": way(3, 5), "c": way(4, 5)},
    ]
    assert way(1, 4) < way(None, 4)
