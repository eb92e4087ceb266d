"""One device as its agent sees it."""

from dataclasses import dataclass, field
from pathlib import Path

from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.training_process import Trainer
from edge_client.owner.floor import Floor
from edge_client.owner.traffic import Traffic


@dataclass(frozen=True)
class Device:
    """Everything that stays the same from lease to lease.

    ``compute`` is ``auto``, ``cpu`` or ``cuda``; the passphrase is None for unencrypted key files.
    """

    folder: DeviceFolder
    client_name: str
    data: Path
    compute: str
    floor: Floor
    trainer: Trainer
    traffic: Traffic
    passphrase: bytes | None = field(default=None, repr=False)
