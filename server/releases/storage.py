"""The places where one coordinator keeps data that must outlast its process."""

from dataclasses import dataclass

from server.records.failpoints import Failpoints
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.threads import Threads
from server.releases.files import ReleaseFolder
from server.releases.metrics_log import MetricsLog


@dataclass(frozen=True)
class Storage:
    """One coordinator's store and folders, and the threads for all that takes time."""

    store: Store
    inbox: Inbox
    releases: ReleaseFolder
    metrics: MetricsLog
    threads: Threads
    failpoints: Failpoints
