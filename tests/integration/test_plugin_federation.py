"""A federation of a plugin's model on real devices: it ends where its simulation does."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist

import msgspec
import pytest

from edge_client.agent.exit_status import PLAN_REFUSED
from edge_client.child.own_examples import OwnRows
from edge_client.descent.compute import prepare_compute
from models.networks.flat_parameters import parameters_sha256
from models.tasks.plugin_task import own_model, plugin_task
from models.tasks.rows import Rows
from server.config.federation import FederationConfig
from server.config.plans import make_plan
from simulation.rounds.federation import Federation as Simulated
from tests.integration.federation import Federation, free_ports
from tests.integration.real_device import RealDevice, await_rounds
from tests.integration.simulated_run import OneProcess, as_simulation
from tests.plugin_package import EXAMPLE, EXAMPLE_PLUGIN, use_example

pytestmark = pytest.mark.xdist_group("plugin federation")

# Two devices, whose updates nobody noises.
OPEN = {
    'mode = "central"': 'mode = "none"',
    "noise_multiplier = 1.0\n": "",
    "delta = 1e-3\n": "",
    "epsilon_budget = 10.0\n": "",
    'adjacency = "zero-out"\n': "",
    "cohort_size = 3": "cohort_size = 2",
    "quorum = 3": "quorum = 2",
}

Make = Callable[..., Federation]


@pytest.fixture
def make_federation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Return a function that starts a federation of the example plugin, with changed settings."""
    site = tmp_path / "site"
    site.mkdir()
    use_example(monkeypatch, site)
    made: list[Federation] = []

    def make(changes: Mapping[str, str]) -> Federation:
        enrolment, devices = free_ports(2)
        text = (EXAMPLE / "federation.toml").read_text()
        for before, after in {**changes, "7440": f"{enrolment}", "7441": f"{devices}"}.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        made.append(Federation(tmp_path / f"f{len(made)}", text))
        made[-1].start()
        return made[-1]

    yield make
    for federation in made:
        federation.stop()


@pytest.fixture
def make_devices() -> Iterator[Callable[..., list[RealDevice]]]:
    """Return a function that enrols a device for each of the example's people."""
    made: list[RealDevice] = []

    def make(federation: Federation, *people: str) -> list[RealDevice]:
        made.extend(devices_of(federation, people))
        return made

    yield make
    for device in made:
        device.stop()


def set_floor(device: RealDevice, *, plugins: Sequence[str], least_cohort: int = 2) -> None:
    """Let a device's floor name plugins."""
    floor = device.folder / "floor.toml"
    text = floor.read_text().replace("least_cohort = 2", f"least_cohort = {least_cohort}")
    floor.write_text(f"plugins = {json.dumps(plugins)}\n{text}")


def devices_of(federation: Federation, people: Sequence[str]) -> list[RealDevice]:
    """Enrol a device for each of the example's people, with that person's messages."""
    from spam_filter.made_up import messages_of  # type: ignore[import-not-found]

    found = []
    for person, invite in zip(people, federation.invite(len(people)), strict=True):
        device = RealDevice(federation.root.parent / invite.stem, "")
        device.data = federation.root.parent / f"{person}.jsonl"
        device.data.write_bytes(
            b"".join(msgspec.json.encode(message) + b"\n" for message in messages_of(person))
        )
        device.enrol(invite)
        found.append(device)
    return found


def simulated(config: FederationConfig, data: Sequence[Path], rounds: int) -> list[bytes]:
    """Return the digest of each round's model as a simulation makes it."""
    prepare_compute("cpu", threads=1, model=config.model)
    plan = make_plan(config, run="0" * 32)
    task, settings = plugin_task(config.task), own_model(config.model, config.task)
    examples: dict[str, Rows] = {
        f"device-{number:04d}": OwnRows.read(task, path, settings).training()
        for number, path in enumerate(data, start=1)
    }
    run = Simulated(as_simulation(config), plan, list(examples), OneProcess(plan, examples))
    digests = []
    for _ in range(rounds):
        run.run_round()
        digests.append(parameters_sha256(run.parameters))
    return digests


def test_two_devices_end_in_the_bits_of_their_simulation(
    make_federation: Make, make_devices: Callable[..., list[RealDevice]]
) -> None:
    federation = make_federation(OPEN)
    devices = make_devices(federation, "ada", "ben")

    for device in devices:
        set_floor(device, plugins=[EXAMPLE_PLUGIN])
        device.start()
    await_rounds(federation, 2)

    digests = [release.parameters_sha256 for release in federation.releases()]
    assert digests == simulated(federation.config, [device.data for device in devices], 2)


def test_a_guarantee_covers_a_plugins_model_and_its_ledger_counts(
    make_federation: Make, make_devices: Callable[..., list[RealDevice]]
) -> None:
    # Attention over several layers with one clip is proved for three places and more.
    federation = make_federation({"cap = 2": "cap = 1"})
    devices = make_devices(federation, "ada", "ben", "cleo")

    for device in devices:
        set_floor(device, plugins=[EXAMPLE_PLUGIN])
        floor = device.folder / "floor.toml"
        floor.write_text(floor.read_text().replace('"none", ', ""))
        device.start()
    await_rounds(federation, 1)

    (release,) = federation.releases()
    epsilon, normal = float(release.metrics["epsilon"] or 0), NormalDist()
    # One Gaussian of z = 1 (Balle and Wang, 2018, theorem 8, for a sensitivity of 1).
    delta = normal.cdf(0.5 - epsilon) - math.exp(epsilon) * normal.cdf(-0.5 - epsilon)
    assert delta == pytest.approx(1e-3, rel=0.01)


def test_a_device_whose_floor_does_not_name_the_plugin_refuses_and_says_the_remedy(
    make_federation: Make, make_devices: Callable[..., list[RealDevice]]
) -> None:
    federation = make_federation({**OPEN, "quorum = 3": "quorum = 1"})
    willing, careful = make_devices(federation, "ada", "ben")
    set_floor(willing, plugins=[EXAMPLE_PLUGIN], least_cohort=1)
    set_floor(careful, plugins=[], least_cohort=1)

    careful.start("--once")
    willing.start()
    await_rounds(federation, 1)

    (release,) = federation.releases()
    assert release.contribution_count == 1
    assert release.metrics["refused_floor_plugin"] == 1
    assert careful.process is not None
    assert careful.process.wait(timeout=60) == PLAN_REFUSED
    told = careful.log.read_text().splitlines()[-1]
    assert told.startswith("sotto-client: the round was not served (floor_plugin): the plan needs ")
    assert 'set plugins = ["sotto-spam-filter==1.0.0"], in floor.toml' in told


def test_a_device_that_has_another_version_does_not_start_and_says_which(
    make_federation: Make, make_devices: Callable[..., list[RealDevice]]
) -> None:
    federation = make_federation(OPEN)
    (device,) = make_devices(federation, "ada")
    set_floor(device, plugins=["sotto-spam-filter==1.0.1"])

    device.start()

    assert device.process is not None
    assert device.process.wait(timeout=60) == 1
    assert device.log.read_text().splitlines()[-1] == (
        "sotto-client: plugin sotto-spam-filter must be of version 1.0.1, 1.0.0 is installed; "
        "install sotto-spam-filter==1.0.1, or change the version in plugins"
    )
