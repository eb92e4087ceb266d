import socket
import sys

import pytest

from simulation.engines.cluster import EngineError, cluster_for, ray_cluster
from simulation.engines.installed import difference, installed


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(EngineError, match=r"pip install 'sotto\[ray\]'"), ray_cluster():
        pass


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "ray://host"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with (
        pytest.raises(
            EngineError, match=f"must be auto, HOST:PORT or ray://HOST:PORT, got {address}"
        ),
        ray_cluster(address),
    ):
        pass


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_an_address_where_nobody_answers_is_named(prefix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        address = f"{prefix}127.0.0.1:{closed_soon.getsockname()[1]}"

    with (
        pytest.raises(EngineError, match=f"--address {address}: no Ray cluster answers there"),
        ray_cluster(address),
    ):
        pass


def test_an_address_needs_the_engine_that_it_is_of() -> None:
    with pytest.raises(EngineError, match="give --engine ray too"), cluster_for("local", "auto"):
        pass


def test_work_of_this_machine_needs_no_cluster() -> None:
    with cluster_for("local", None) as cluster:
        assert cluster is None


def test_machines_with_the_same_software_differ_in_nothing() -> None:
    assert difference(installed(), {**installed(), "host": "elsewhere"}) is None


def test_a_difference_says_what_each_side_has() -> None:
    ours = {"host": "here", "sotto": "2.0", "torch": "2.13.0+cpu"}
    node = {"host": "far", "sotto": "1.9", "torch": "2.13.0+cpu"}

    assert difference(ours, node) == "node far differs from this machine: sotto 1.9 there, 2.0 here"
