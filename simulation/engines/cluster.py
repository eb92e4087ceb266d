"""A Ray cluster, as long as a command needs it: one that is joined, or one of this machine alone.

A cluster that is started here listens on the loopback interface only and asks for a token that
nobody else has. It has no dashboard, tells nobody that it is used, and its folder goes with it.
"""

import importlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from simulation.engines.installed import Installed, difference, installed
from simulation.workers.processors import processor_count

_CONNECT_S = 5.0
_LONGEST_PLACE = 22
_CLIENT = "ray://"
_AUTO = "auto"

# Ray reads these when it is imported, and hands them on to the processes that it starts.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_LOOPBACK = "127.0.0.1"
_ALONE = {
    # The one switch that lets Ray's processes listen on the loopback interface alone.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    # One a process: Ray reads it once.
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}


class EngineError(RuntimeError):
    """Raised when work cannot run on the engine that was asked for; the text has the remedy."""


class Cluster(NamedTuple):
    """A cluster that this process is joined to.

    Attributes:
        processor_count: Processors of all nodes.
        gpu_count: Graphics processors of all nodes.
        node_count: Nodes that have processors.
    """

    processor_count: int
    gpu_count: int
    node_count: int


@contextmanager
def cluster_for(
    engine: str, address: str | None, *, worker_count: int | None = None
) -> Iterator[Cluster | None]:
    """Join or start the cluster that flags ask for; None where work runs in local processes.

    Args:
        engine: ``local`` or ``ray``.
        address: As in ``ray_cluster``.
        worker_count: Workers that are asked for; None for one a processor.

    Raises:
        EngineError: If an address is given and the engine is not Ray; otherwise as ``ray_cluster``.
    """
    if engine == "local":
        if address is not None:
            raise EngineError(f"--address {address} is a Ray cluster's: give --engine ray too")
        yield None
        return
    with ray_cluster(address, processors=worker_count) as cluster:
        yield cluster


@contextmanager
def ray_cluster(
    address: str | None = None,
    *,
    processors: int | None = None,
    object_store_bytes: int | None = None,
) -> Iterator[Cluster]:
    """Join a cluster or start one, check that its nodes agree with this machine, and leave it.

    Args:
        address: ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``; None starts a cluster of this
            machine alone, which ends with the context.
        processors: Processors of a cluster that is started here; None for the machine's.
        object_store_bytes: Memory of its object store; None for Ray's own choice.

    Raises:
        EngineError: If Ray is not installed, nobody answers at the address, or a node has another
            Python, sotto, source file or torch than this machine.
    """
    variables = _QUIET | ({} if address is not None else _ALONE)
    with ExitStack() as leaving:
        leaving.enter_context(_environment(variables))
        folder = leaving.enter_context(_own_folder(address))
        leaving.enter_context(_own_handler())
        ray = _ray()
        leaving.enter_context(_environment_read(alone=folder is not None))
        if folder is not None:
            _start(ray, folder, processors or processor_count(), object_store_bytes)
        else:
            _join(ray, address or _AUTO)
        try:
            if folder is None:
                _check_nodes(ray, address or _AUTO)
            yield _described(ray)
        finally:
            ray.shutdown()


def live_nodes() -> list[Mapping[str, Any]]:  # Ray's own description.
    """Return the nodes with processors that are up, as Ray describes them."""
    return [
        node for node in _ray().nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    ]


def ask_nodes(function: Callable[[], object]) -> list[Any]:  # Ray's own references.
    """Have every node that is up call a function, whatever else it does; return what will come."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = _ray().remote(num_cpus=0, max_retries=0)(function)
    return [
        remote.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in live_nodes()
    ]


def _ray() -> Any:  # Ray's functions are hardly typed.
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise EngineError("--engine ray needs Ray: pip install 'sotto[ray]'") from None
    return ray


@contextmanager
def _environment_read(*, alone: bool) -> Iterator[None]:
    """Let Ray read the variables that it reads only when it is imported, which may be long ago."""
    from ray._private import auto_init_hook, ray_constants

    # Asked for anything after it was left, it would start a cluster that nobody wants.
    auto_init_hook.enable_auto_connect = False
    compiled: Any = importlib.import_module("ray._raylet")  # It has no types.
    compiled.Config.initialize("")
    compiled.AuthenticationTokenLoader.instance().reset_cache()
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = before and not alone
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _start(ray: Any, folder: Path, processors: int, object_store_bytes: int | None) -> None:
    try:
        ray.init(
            num_cpus=processors,
            include_dashboard=False,
            object_store_memory=object_store_bytes,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(folder),
            _node_ip_address=_LOOPBACK,
        )
    except Exception as error:  # Ray raises that itself where a process is late.
        raise EngineError(
            f"a Ray cluster of this machine did not start: {_first_lines(error)}"
        ) from error
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    if addresses != {_LOOPBACK}:
        # Ray was imported before, with another setting.
        ray.shutdown()
        raise EngineError(
            f"a cluster of this machine must listen on {_LOOPBACK} alone, got "
            f"{', '.join(sorted(addresses))}: import Ray later, or give --address"
        )


def _join(ray: Any, address: str) -> None:
    _check_reachable(address)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # RuntimeError, ConnectionError, its own.
        raise EngineError(f"--address {address}: {_first_lines(error)}") from error


def _check_reachable(address: str) -> None:
    """Check that somebody listens at ``HOST:PORT``: Ray itself would end this process."""
    if address == _AUTO:
        return
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdigit():
        raise EngineError(f"--address must be auto, HOST:PORT or ray://HOST:PORT, got {address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise EngineError(
            f"--address {address}: no Ray cluster answers there ({error}); on a node of the "
            "cluster, `ray status` shows its address"
        ) from None


def _check_nodes(ray: Any, address: str) -> None:
    """Ask every node what it has installed."""

    # A function of a function travels by value: a node without sotto can answer too.
    def what_is_installed() -> Installed:
        try:
            from simulation.engines.installed import installed
        except ModuleNotFoundError as error:
            import socket

            return {"host": socket.gethostname(), "sotto": f"({error})"}
        return installed()

    asked = ask_nodes(what_is_installed)
    if not asked:
        raise EngineError(f"--address {address}: no node of the cluster has a processor")
    ours = installed()
    found = [difference(ours, node) for node in ray.get(asked)]
    differing = [line for line in found if line is not None]
    if differing:
        raise EngineError(f"--address {address}: {'; '.join(differing)}; install the same on both")


def _described(ray: Any) -> Cluster:
    nodes = live_nodes()
    resources = ray.cluster_resources()
    return Cluster(
        processor_count=int(sum(node["Resources"]["CPU"] for node in nodes)),
        gpu_count=int(resources.get("GPU", 0)),
        node_count=len(nodes),
    )


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, and leave it as it was."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _own_folder(address: str | None) -> Iterator[Path | None]:
    """Yield a folder for a cluster that is started here; None where one is joined."""
    if address is not None:
        yield None
        return
    # The path of a socket has at most 107 bytes, and Ray appends up to 70.
    usual = tempfile.gettempdir()
    place = usual if len(usual) <= _LONGEST_PLACE else "/tmp"  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="sotto-ray-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_handler() -> Iterator[None]:
    """Give the handler of SIGTERM back, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
