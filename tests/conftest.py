"""What holds for every test."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

from tests.key_pool import KeyPool
from tests.server.postgresql_cluster import NoPostgresqlError, PostgresqlCluster

# A busy machine, or the first import of a library, is slow and not wrong: nothing here is timed.
# The same examples every time: what makes a test fail is a change.
settings.register_profile("sotto", deadline=None, derandomize=True)
settings.load_profile("sotto")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give all processes of a run one temporary folder, which goes with the run."""
    gc.disable()  # Until all is imported and collected: none of it ever goes.
    if hasattr(config, "workerinput"):  # A worker has the folder from the process that started it.
        return
    folder = tempfile.mkdtemp(prefix="sotto-")  # Short: a socket's path has at most 100 bytes.
    Path(folder).chmod(0o711)  # PostgreSQL, which is not root, passes through.
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.option.basetemp = config.option.basetemp or f"{folder}/t"
    # Workers share the cores; a team of threads in each would spin while it waits for the others.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # At the end of the process, after multiprocessing has taken its own folder (-100) out of it.
    arguments = {"ignore_errors": True}
    Finalize(None, shutil.rmtree, (folder,), arguments, exitpriority=-200)


class ByFile(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """Each file's tests, or each group's, in one worker, which makes what they share once."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return scope.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """Start the process that others are forked from with what integration tests need of it.

    There is one in a process, and a simulation that came first would start it with less.
    """
    gc.freeze()
    gc.enable()
    if "tests.forking" in sys.modules:
        forkserver.ensure_running()


@pytest.fixture(scope="session", autouse=True)
def pooled_keys() -> Iterator[None]:
    """Let parties of this process take their RSA keys from the run's pool."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("privacy.identities.party.make_rsa_key", KeyPool().next_key)
        yield


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlCluster]:
    try:
        cluster = PostgresqlCluster()
    except NoPostgresqlError as error:
        pytest.skip(str(error))
    yield cluster
    cluster.stop()
