"""Write a round's release to the disk while its model is sealed for the next round's devices.

The parameters are hashed while the ledger's entry is made, and flushed while they are sealed and
described. Nothing is recorded here: files that a crash leaves behind belong to no release.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from models.plan.release_record import Metric, ReleaseRecord
from models.vector.codec import Payload, encode, payload_size
from models.vector.schema import RELEASED, Schema
from privacy.foundation.memory_pool import fresh_memory
from privacy.identities.party import Identity
from privacy.noise.settings import PrivacySettings
from server.budget.round_entries import RoundEntries
from server.config.federation import FederationConfig
from server.downlink.sealed_model import SealedModel
from server.releases.files import NewRelease, parameters_digest
from server.releases.storage import Storage

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Model:
    """The parameters that the next round starts from.

    Attributes:
        round_number: Round that ended in them; 0 for the initial ones.
        parameters: Flat float32, shape ``(elements,)``, with the layers that the next round adds.
        sha256: Their digest, 32 bytes.
        released_sha256: Digest of the release, 32 bytes; another one if they have grown since.
        growth_stage: Their stage; None if the model does not grow.
        clipping_norm: That of the next round, if it follows the clients'; else None.
    """

    round_number: int
    parameters: Tensor
    sha256: bytes
    released_sha256: bytes
    growth_stage: int | None = None
    clipping_norm: float | None = None


@dataclass(frozen=True)
class Written:
    """A release, with its ledger entry, whose files are on the disk but not recorded yet."""

    new: NewRelease
    record: ReleaseRecord
    model: Model
    sealing: asyncio.Task[SealedModel]


class ReleaseWriter:
    """A writer of a run's releases, in the memory of the one before where the size allows it."""

    def __init__(self, config: FederationConfig, run: str, storage: Storage) -> None:
        self._config = config
        self._entries = RoundEntries(config, storage.store, run)
        self._releases, self._threads = storage.releases, storage.threads
        self._payload: memoryview | None = None

    async def write(
        self,
        new: NewRelease,
        privacy: PrivacySettings,
        identity: Identity,
        seal: Callable[[Model, Payload], SealedModel],
    ) -> Written:
        """Write and flush a release's files, with a new ledger entry, and begin to seal its model.

        ``seal`` makes the sealed forms of a model and its payload.

        Raises:
            OSError: If the disk is full; what was written belongs to no release, and the same
                call may be made again.
        """
        begun: list[asyncio.Task[Any]] = []
        try:
            return await self._write(new, privacy, identity, seal, begun)
        except OSError:
            # Nothing of a failed try may still write when the next one begins.
            await asyncio.gather(*begun, return_exceptions=True)
            raise

    async def _write(
        self,
        new: NewRelease,
        privacy: PrivacySettings,
        identity: Identity,
        seal: Callable[[Model, Payload], SealedModel],
        begun: list[asyncio.Task[Any]],
    ) -> Written:
        run, number, stage = self._threads.run, new.round_number, new.plan.growth_stage

        def begin(work: Callable[[], _Result]) -> asyncio.Task[_Result]:
            begun.append(task := asyncio.create_task(run(work)))
            return task

        hashing = begin(lambda: parameters_digest(new.parameters))
        schema = self._config.schema_at(stage).with_roles(*RELEASED)
        entry, payload = await asyncio.gather(
            begin(lambda: self._entries.of_release(number, privacy)),
            begin(lambda: self._begin(schema, new)),
        )
        new = dataclasses.replace(new, entry=entry)
        writing = begin(lambda: self._releases.write_parameters(number, payload))
        sha256 = await hashing
        norm = clipping_norm_after(new.metrics)
        parameters = torch.from_numpy(new.parameters)
        model = Model(number, parameters, sha256, sha256, stage, norm)
        sealing = begin(lambda: seal(model, payload))
        describing = begin(lambda: self._releases.describe(new, identity, sha256))
        record, _ = await asyncio.gather(describing, writing)
        await run(lambda: self._releases.complete(number))
        return Written(new, record, model, sealing)

    def _begin(self, schema: Schema, new: NewRelease) -> Payload:
        self._releases.begin(new.round_number)
        if self._payload is None or len(self._payload) != payload_size(schema):
            self._payload = fresh_memory(payload_size(schema))
        return encode(schema, new.parameters, into=self._payload)


def clipping_norm_after(figures: Mapping[str, Metric]) -> float | None:
    """Return where a round left the clipping norm; None where it stays that of the settings."""
    norm = figures.get("next_clipping_norm")
    return None if norm is None else float(norm)
