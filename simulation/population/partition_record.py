"""The record of the deal: kept with a run as ``partition.json``, printed and drawn.

It names places in the data set, never an example itself, so a record is as public as the data set.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from privacy.foundation.atomic_files import READABLE, write_atomically

PARTITION_FILE = "partition.json"


class PartitionChangedError(ValueError):
    """Raised when a run's folder holds another partition than its data set gives now."""


class ClientRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The examples of one client, by place and class.

    Attributes:
        name: The client, as a coordinator names it.
        owner: The client's user or role; empty where images are dealt.
        train_size: Examples to train on: images, or tokens of text.
        train_counts: Training images of each class; empty for text.
        train: Places among the data set's training images; empty for text.
        pixel_noise: σ of the camera's noise, in levels of 0 to 255; absent if no camera adds any.
    """

    name: str
    owner: str = ""
    train_size: int
    test_size: int
    train_counts: tuple[int, ...] = ()
    test_counts: tuple[int, ...] = ()
    train: tuple[int, ...] = ()
    test: tuple[int, ...] = ()
    # Left out where it says nothing: records of older runs stay what they were.
    pixel_noise: float | msgspec.UnsetType = msgspec.UNSET


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The deal: what every client got.

    Attributes:
        seed: Seed of the deal.
        unit: The unit of the sizes: ``images``, ``words``, ``characters`` or ``clips``.
        classes: Names of the classes in order of their numbers; empty for text.
        coarse: Name of the coarse class of each class; absent where there is one level.
        clients: Every client, in the order of their names.
    """

    dataset: str
    partition: str
    seed: int
    unit: str
    classes: tuple[str, ...] = ()
    coarse: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    clients: tuple[ClientRecord, ...]

    def encode(self) -> bytes:
        """Return the record as JSON bytes, equal for equal records."""
        return msgspec.json.encode(self, order="deterministic")

    @property
    def pixel_noise(self) -> list[float]:
        """Return the σ of every client's camera, in pixel levels; empty where none adds noise."""
        levels = [client.pixel_noise for client in self.clients]
        return [level for level in levels if level is not msgspec.UNSET]

    def figures(self) -> dict[str, object]:
        """Return sizes in figures: the smallest, the median and the largest client."""
        figures: dict[str, object] = {
            "dataset": self.dataset,
            "partition": self.partition,
            "seed": self.seed,
            "unit": self.unit,
            "clients": len(self.clients),
            "train": _spread([client.train_size for client in self.clients]),
            "test": _spread([client.test_size for client in self.clients]),
            "clients_without_test": sum(not client.test_size for client in self.clients),
        }
        if self.classes:
            held = [sum(count > 0 for count in client.train_counts) for client in self.clients]
            figures["classes"] = len(self.classes)
            figures["classes_per_client"] = _spread(held)
        if self.pixel_noise:
            figures["pixel_noise"] = [min(self.pixel_noise), max(self.pixel_noise)]
        return figures


def keep_partition(folder: Path, record: PartitionRecord) -> None:
    """Write the record into a run's folder, or check it against the one that is there.

    Raises:
        PartitionChangedError: If they differ: the data set is not what it was.
    """
    path, encoded = folder / PARTITION_FILE, record.encode()
    if path.exists() and path.read_bytes() != encoded:
        raise PartitionChangedError(
            f"{path} is not how the data set is dealt now; give the data set the run started "
            "with, or another --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encoded, mode=READABLE)


def text_record(
    record: PartitionRecord,
    sizes: Mapping[str, tuple[int, int]],
    owners: Mapping[str, str],
) -> PartitionRecord:
    """Return the record with each client's owner, and its tokens to train and to test on."""
    clients = tuple(
        ClientRecord(name=name, owner=owners[name], train_size=train, test_size=test)
        for name, (train, test) in sizes.items()
    )
    return msgspec.structs.replace(record, clients=clients)


def _spread(sizes: Sequence[int]) -> dict[str, int]:
    ordered = sorted(sizes)
    return {
        "smallest": ordered[0],
        "median": ordered[len(ordered) // 2],
        "largest": ordered[-1],
        "total": sum(ordered),
    }
