"""A federation on loopback: its folder, its coordinator's process, its devices."""

import os
import shutil
import signal
import socket
import tempfile
from functools import cache
from itertools import count, islice
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from server.config.federation import FederationConfig, parse_config, read_config
from server.operating.founding import found, write_invites
from server.records.folder import ServerFolder
from server.records.store import open_store
from server.releases.publishing import ReleaseSummary, list_releases
from tests.integration.device import Device, enrol
from tests.integration.serving_process import LEAP_S, start_serving
from tests.key_pool import KeyPool

SETTINGS = """
seed = 1
{first}

[model]
vocabulary_size = {words}
{model}

[vocabulary]
name = "english-10k"
size = {words}

[training]
optimiser = "sgd"
learning_rate = 1.0
batch_size = 4
bptt_steps = 10
example_cap = 1000
{more_training}

[privacy]
mode = "none"
clipping_norm = {clipping_norm}
{more_privacy}

[aggregation]
{rule}
server_step_size = 1.0

[rounds]
cap = {cap}
cohort_size = {cohort}
quorum = {quorum}
deadline_s = {deadline}
{more_rounds}

[listen]
enrolment = "127.0.0.1:{enrolment}"
devices = "127.0.0.1:{devices}"
{tables}
"""


ATTENTIVE = """
rule = "attentive"
attention_strength = 0.5
"""
GRU = """
family = "gru_lm"
hidden_size = {hidden}
tied = true
"""


# Below the ports that the kernel gives away, and each worker's own: no other worker takes one
# between now and the coordinator's start, nor while it is killed and started again. Other runs of
# the tests on this machine most likely begin elsewhere.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
_PORTS = count(20_000 + 1_000 * _WORKER + os.getpid() % 500)


def free_ports(number: int) -> list[int]:
    """Return ports that nobody listens on, none of them twice."""
    return list(islice(filter(_is_free, _PORTS), number))


def _is_free(port: int) -> bool:
    with socket.socket() as opened:
        try:
            opened.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def settings(**changes: object) -> str:
    """Return a small federation's TOML on free ports."""
    enrolment, devices = free_ports(2)
    values: dict[str, object] = {
        "words": 200,
        "hidden": 8,
        "cap": 100,
        "cohort": 2,
        "quorum": 2,
        "deadline": LEAP_S,
        "clipping_norm": 100.0,
        "rule": ATTENTIVE,
        "more_training": "",
        "more_privacy": "",
        "more_rounds": "",
        "first": "",
        "tables": "",
        "enrolment": enrolment,
        "devices": devices,
    }
    values |= changes
    values.setdefault("model", GRU.format(**values))
    return SETTINGS.format(**values)


class Federation:
    """Hold one federation; the coordinator runs between ``start`` and ``stop``."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        self.config = _found_quickly(root, text)
        self.folder = ServerFolder(root)
        self._founded_with = self.folder.config.read_text()
        self.process: BaseProcess | None = None
        self.devices: list[Device] = []

    def start(self, failpoint: str | None = None) -> None:
        """Start the coordinator and wait until it listens."""
        self.process = start_serving(self.root, self._log, failpoint)

    @property
    def has_new_settings(self) -> bool:
        """Return whether somebody has written to its settings since it was founded."""
        return self.folder.config.read_text() != self._founded_with

    @property
    def log(self) -> str:
        """What the coordinator logged."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self.root.parent / f"{self.root.name}.log"

    def invite(self, count: int = 1, client: str | None = None) -> list[Path]:
        return write_invites(
            self.folder, self.config, self.root.parent / "invites", count=count, client=client
        )

    def enrol(self, count: int) -> list[Device]:
        """Enrol devices with the running coordinator."""
        new: list[Device] = []
        for invite in self.invite(count):
            identity = self.root.parent / f"{self.root.name}-{invite.stem}"
            new.append(enrol(invite, identity))
        self.devices += new
        return new

    def releases(self) -> list[ReleaseSummary]:
        """Return every released round, read from the store."""
        store = open_store(self.config.store)
        try:
            return list_releases(store)
        finally:
            store.close()

    def wait_killed(self) -> None:
        """Wait until the coordinator has died of its failpoint."""
        assert self.process is not None
        self.process.join(100)
        assert self.process.exitcode == -signal.SIGKILL, self.log

    def leap(self) -> None:
        """Set the coordinator's clocks ahead by as long as a round lasts if a test does not say."""
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGUSR1)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join()

    def stop(self) -> None:
        """End the coordinator, if it runs, and every connection to it."""
        for device in self.devices:
            device.close()
        if self.process is not None and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)
            self.process.join(60)
            if self.process.is_alive():
                self.kill()


# A template outlives the turns of the other pool: a later device must not get its keys.
_TEMPLATE_KEYS = KeyPool("template")


def _found_quickly(root: Path, text: str) -> FederationConfig:
    """Found a federation with keys that an earlier test of this process made."""
    config = parse_config(text, "the test's settings")
    template = _templates() / config.schema.sha256.hex()[:16]
    if not template.exists():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("privacy.identities.party.make_rsa_key", _TEMPLATE_KEYS.next_key)
            found(template, text, [])
    shutil.copytree(template, root)
    (root / "federation.toml").write_text(text)
    return read_config(root / "federation.toml")


@cache
def _templates() -> Path:
    """Return this process's folder of founded federations; it goes with the run of the tests."""
    return Path(tempfile.mkdtemp(prefix="federations-"))
