"""Federations that are torn down whatever a test does to them."""

from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest

from tests.integration.federation import Federation, settings
from tests.integration.masked_federation import MaskedFederation
from tests.integration.real_device import TEXTS, RealDevice

Make = Callable[..., Federation]
MakeMasked = Callable[..., MaskedFederation]
MakeDevices = Callable[[Federation, int], list[RealDevice]]


@pytest.fixture
def make_federation(tmp_path: Path) -> Iterator[Make]:
    """Return a function that founds federations with changed settings."""
    made: list[Federation] = []

    def make(**changes: object) -> Federation:
        federation = Federation(tmp_path / f"f{len(made)}", settings(**changes))
        made.append(federation)
        return federation

    yield make
    for federation in made:
        federation.stop()
    for federation in made:
        # A restart goes on with its round, in every mode, unless the test has changed the settings.
        assert federation.has_new_settings or "have changed its plan" not in federation.log


@pytest.fixture
def masked_federation(tmp_path: Path) -> Iterator[MakeMasked]:
    """Return a function that founds federations in mode ``masked``, each with its helper."""
    made: list[MaskedFederation] = []

    def make(**changes: object) -> MaskedFederation:
        made.append(MaskedFederation(tmp_path / f"m{len(made)}", **changes))
        return made[-1]

    yield make
    for federation in made:
        federation.stop()


@pytest.fixture
def make_devices(tmp_path: Path) -> Iterator[MakeDevices]:
    """Return a function that enrols real devices with a running federation."""
    made: list[RealDevice] = []

    def make(federation: Federation, count: int) -> list[RealDevice]:
        for invite, text in zip(federation.invite(count), TEXTS, strict=False):
            device = RealDevice(tmp_path / invite.stem, text)
            device.enrol(invite)
            made.append(device)
        return made

    yield make
    for device in made:
        device.stop()


@pytest.fixture
def no_forks_left() -> Iterator[None]:
    """Kill what a test that failed has forked and not ended: its worker would wait for it."""
    before = set(active_children())
    yield
    for process in set(active_children()) - before:
        process.kill()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts processes: all that lies here."""
    item.add_marker(pytest.mark.slow)
