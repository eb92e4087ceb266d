"""A Ray cluster of two nodes on this machine, which the tests of a module share."""

from collections.abc import Iterator

import pytest

from benchmarks.parts.two_nodes import TwoNodes, two_nodes
from simulation.engines.cluster import Cluster, ray_cluster


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    """Start two nodes; a test that kills one comes last."""
    with two_nodes() as started:
        yield started


@pytest.fixture(scope="module")
def joined(nodes: TwoNodes) -> Iterator[Cluster]:
    """Join them."""
    with ray_cluster(nodes.address) as cluster:
        yield cluster
