"""A Ray cluster of two nodes on this machine, which all tests of a file share.

They run in one process, marked ``xdist_group("ray")``, and may take long on a busy machine: Ray
starts a process for nearly everything. Two nodes that nobody asks take a third of a core, so they
end with the file's tests and not with the run.
"""

from collections.abc import Iterator

import pytest

from benchmarks.parts.two_nodes import TwoNodes, two_nodes
from simulation.engines.cluster import Cluster, ray_cluster


@pytest.fixture(scope="module")
def started_nodes() -> Iterator[TwoNodes]:
    with two_nodes() as started:
        yield started


@pytest.fixture(scope="module")
def joined_cluster(started_nodes: TwoNodes) -> Iterator[Cluster]:
    with ray_cluster(started_nodes.address) as cluster:
        yield cluster


@pytest.fixture
def nodes(started_nodes: TwoNodes) -> TwoNodes:
    """Return two nodes that are up, whatever a test before did to them."""
    started_nodes.renew()
    return started_nodes


@pytest.fixture
def joined(nodes: TwoNodes, joined_cluster: Cluster) -> Cluster:
    """Return the cluster, which this process has joined: it can join one at a time."""
    return joined_cluster
