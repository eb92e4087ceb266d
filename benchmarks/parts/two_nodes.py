"""A Ray cluster of two nodes on this machine, one of which may be killed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray._private.ray_constants
import ray._private.utils
from ray._private.node import Node
from ray.cluster_utils import Cluster

_RAYS_START_RAYLET = Node.start_raylet
_OBJECT_STORE_BYTES = 100 << 20
_STARTS = 3
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    # A worker that starts slowly on a busy machine is not given up.
    "RAY_worker_register_timeout_seconds": "600",
}
# Ray aborts a node whose agents do not say within 15 s where they listen. These say that they do
# not, since what they listen with is not installed; so their files may lie there from the start.
_AGENTS_FILES = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
_NOWHERE = "-1"


class TwoNodes:
    """A head, to be joined at its address, and a second node; a processor each."""

    def __init__(self, folder: Path) -> None:
        """Start both on the loopback interface, with their files in a folder."""
        common: dict[str, Any] = {  # Ray's own settings.
            "num_cpus": 1,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
            "include_log_monitor": False,
            "node_ip_address": "127.0.0.1",
        }
        # A process less: nobody adds nodes by himself.
        head = {**common, "temp_dir": str(folder), "no_monitor": True}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            self._second = self._cluster.add_node(**common)
        except Exception:
            self.stop()
            raise
        self._common = common

    def renew(self) -> None:
        """Start another second node, if the last was killed."""
        if not self.second_is_alive:
            self._second = self._cluster.add_node(**self._common)

    @property
    def address(self) -> str:
        """Return what ``--address`` takes."""
        return str(self._cluster.address)

    @property
    def second(self) -> str:
        """Return the identifier of the second node."""
        return str(self._second.node_id)

    @property
    def second_is_alive(self) -> bool:
        """Return whether the second node's main process runs."""
        return "raylet" in dict(self._second.live_processes())

    def stop(self) -> None:
        """End both."""
        self._cluster.shutdown()  # type: ignore[no-untyped-call]  # Ray leaves it untyped


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """Start the nodes, and leave nothing of them behind."""
    folder = Path(tempfile.mkdtemp(prefix="r-"))  # Short: a socket's path has at most 107 bytes.
    with (
        patch.dict(os.environ, _ENVIRONMENT),
        # As the variable says, which Ray reads when it is imported: others may have done that.
        patch.object(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", new=False),
        # It would leave the address in a folder that all users share.
        patch.object(ray._private.utils, "write_ray_address"),
        # Two seconds of processor time, for a page that nobody asks for.
        patch.object(Node, "start_api_server"),
        patch.object(Node, "start_raylet", _start_raylet),
    ):
        try:
            nodes = _started(folder)
            try:
                yield nodes
            finally:
                nodes.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _start_raylet(node: Any, *arguments: Any, **settings: Any) -> None:  # Ray's own.
    for name in _AGENTS_FILES:
        Path(node.get_session_dir_path(), f"{name}_{node.node_id}").write_text(_NOWHERE)
    _RAYS_START_RAYLET(node, *arguments, **settings)


def _started(folder: Path) -> TwoNodes:
    """Start both; a busy machine may need longer than the half minute that Ray waits."""
    for attempt in range(1, _STARTS):
        try:
            return TwoNodes(folder / str(attempt))
        except Exception as error:  # Ray raises that itself.
            print(f"Ray did not start, once more: {error}")
    return TwoNodes(folder / str(_STARTS))
