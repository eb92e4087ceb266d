"""Run a real federation of masked sums on loopback, with its helper in a process of its own."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.parts.deployment import BenchmarkError, Deployment, free_ports
from benchmarks.round_latency import MODEL_10_M, TIMEOUT_S, WARM_UP_ROUNDS, round_seconds
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem
from server.helper.folder import HelperFolder, admit_helper, found_helper
from server.helper.settings import HelperSettings
from server.operating.authorities import admit_helper as certify
from server.records.folder import ServerFolder

_COHORT = 10
_CLEAR = 'mode = "none"\nclipping_norm = 100.0\n'
_MASKED = """mode = "masked"
clipping_norm = 100.0
noise_multiplier = 1.0
delta = 1e-3
epsilon_budget = 1e9
coordinator_epsilon_budget = 1e9
adjacency = "zero-out"
honest_share = 1.0
"""


class MaskedDeployment(Deployment):
    """A federation whose coordinator asks a helper; use it as a context manager."""

    def __init__(self, folder: Path, *, words: int, hidden: int, cohort: int) -> None:
        """Found a federation and its helper below an empty folder; see ``Deployment``."""
        (self._port,) = free_ports(1)
        super().__init__(folder, words=words, hidden=hidden, cohort=cohort)
        self.helper: subprocess.Popen[str] | None = None
        self._helper_folder = HelperFolder(folder / "helper")
        self._admit(folder / "authority.pem")

    def changed(self, settings: str) -> str:
        """Return the settings with masks and a helper."""
        masked = settings.replace(_CLEAR, _MASKED)
        return f'{masked}\n[helper]\naddress = "127.0.0.1:{self._port}"\n'

    def _admit(self, authority: Path) -> None:
        federation = ServerFolder(self.root)
        certificate = CertificateAuthority.load(federation.authority).certificate
        authority.write_bytes(certificate_pem(certificate))
        limits = HelperSettings(
            listen=f"127.0.0.1:{self._port}", least_contributors=2, largest_rounds_a_day=1000
        )
        found_helper(self._helper_folder, authority, ["127.0.0.1"], limits)
        certify(federation, self._helper_folder.request, key_file=None, passphrase=None)
        admit_helper(self._helper_folder, federation.helper, now=time.time())

    def start_helper(self) -> None:
        """Start ``sotto-helper run`` and wait until it listens."""
        self.helper = subprocess.Popen(
            [sys.executable, "-m", "server.helper.cli", "run", str(self._helper_folder.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = self.helper.stdout.readline() if self.helper.stdout else ""
        if "helper on port" not in line:
            raise BenchmarkError("the helper does not listen")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.helper is not None:
            self.helper.kill()
            self.helper.wait()
            if self.helper.stdout is not None:
                self.helper.stdout.close()


def deployed_rounds(rounds: int) -> dict[str, float]:
    """Return the median seconds of rounds of 10 devices and 10 million elements, and their ratio.

    Args:
        rounds: Rounds that are timed with masks, and without.
    """
    seconds = {}
    for name, kind in (("round10_s", Deployment), ("round10_masked_s", MaskedDeployment)):
        with (
            tempfile.TemporaryDirectory(prefix="sotto-rounds-") as folder,
            kind(Path(folder), cohort=_COHORT, **MODEL_10_M) as deployment,
        ):
            if isinstance(deployment, MaskedDeployment):
                deployment.start_helper()
            deployment.start_coordinator()
            deployment.enrol()
            for number in range(_COHORT):
                deployment.start_idle_device(number)
            deployment.await_rounds(WARM_UP_ROUNDS, TIMEOUT_S)
            first = deployment.rounds_logged()
            deployment.await_rounds(first + rounds, TIMEOUT_S)
            seconds[name] = statistics.median(round_seconds(deployment, first))
    return seconds | {"round10_ratio": seconds["round10_masked_s"] / seconds["round10_s"]}
