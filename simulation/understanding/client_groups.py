"""Tell which clients are alike: by the class, or coarse class, that most of their images have."""

from pathlib import Path

import msgspec

from simulation.config.run_files import read_run_file
from simulation.population.partition_record import PARTITION_FILE, ClientRecord, PartitionRecord


def client_groups(folder: Path) -> dict[str, str]:
    """Return each client's group: the class, coarse if there are two levels, of most of its images.

    Clients without classes, such as writers of text, are missing.
    """
    path = folder / PARTITION_FILE
    if not path.exists():
        return {}
    record = read_run_file(path, PartitionRecord)
    if not record.classes:
        return {}
    names = record.classes if isinstance(record.coarse, msgspec.UnsetType) else record.coarse
    return {client.name: _group(client, names) for client in record.clients}


def _group(client: ClientRecord, names: tuple[str, ...]) -> str:
    held: dict[str, int] = {}
    for name, count in zip(names, client.train_counts, strict=True):
        held[name] = held.get(name, 0) + count
    return max(held, key=lambda name: held[name])
