"""One device, as its agent sees it: its folder, its data, what its owner accepts and who trains."""

from dataclasses import dataclass, field
from pathlib import Path

from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.training_process import Trainer
from edge_client.owner.floor import Floor
from edge_client.owner.traffic import Traffic


@dataclass(frozen=True)
class Device:
    """Everything that stays the same from lease to lease.

    Attributes:
        folder: The device's folder.
        client_name: Name given at enrolment.
        data: The device's own data.
        compute: ``auto``, ``cpu`` or ``cuda``.
        floor: The least that the owner accepts.
        trainer: Does the work.
        traffic: Counts the day's bytes.
        passphrase: Opens the key files; None where they are not encrypted.
    """

    folder: DeviceFolder
    client_name: str
    data: Path
    compute: str
    floor: Floor
    trainer: Trainer
    traffic: Traffic
    passphrase: bytes | None = field(default=None, repr=False)
