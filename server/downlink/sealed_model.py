"""Seal the current model once for a cohort, in every form in which a device may fetch it.

One form is the whole model. If releases travel as deltas (``compression.downlink``), the whole one
is squeezed, and each earlier release still held adds a form: the way from there.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from models.compression.release_delta import delta_sha256, encode_delta
from models.plan.plan import released_schema
from models.plan.release_record import ReleaseError
from models.settings.compression import CompressionSettings
from models.vector.codec import FlatVector, Payload
from models.vector.schema import Schema
from privacy.identities.party import Identity
from server.downlink.sealed_once import Downlink
from server.releases.files import ReleaseFolder, parameters_digest


@dataclass(frozen=True)
class SealedModel:
    """One model as devices fetch it: ``whole``, or ``moved`` from the release of a digest."""

    whole: Downlink
    moved: Mapping[bytes, Downlink] = field(default_factory=dict)


@dataclass(frozen=True)
class _Earlier:
    sha256: bytes
    schema: Schema
    flat: FlatVector


class ModelSealer:
    """A sealer of one model after the other, which holds the last ones' parameters, not copies."""

    def __init__(self, run: bytes, settings: CompressionSettings | None) -> None:
        """Seal for one run, identified by 16 bytes; without settings releases travel whole."""
        self._run = run
        sends_moves = settings is not None and settings.downlink == "delta"
        self._settings = settings if sends_moves else None
        count = 0 if self._settings is None else self._settings.downlink_releases
        self._earlier: deque[_Earlier] = deque(maxlen=count)

    @property
    def remembers(self) -> int:
        """Return how many earlier releases are held at most."""
        return self._earlier.maxlen or 0

    def remember(self, schema: Schema, flat: FlatVector, sha256: bytes) -> None:
        """Offer a way from this model, float32, shape ``(elements,)``, in later forms."""
        if self.remembers and all(one.sha256 != sha256 for one in self._earlier):
            self._earlier.append(_Earlier(sha256, schema, flat))

    def remember_kept(self, releases: ReleaseFolder, last_round: int) -> None:
        """Take up the releases before the newest that devices may hold, as far as they are kept."""
        for number in range(max(0, last_round - self.remembers), last_round):
            try:
                stored = releases.read(number)
            except ReleaseError:
                continue  # Not kept, or damaged: devices that hold it fetch a whole model.
            flat = stored.parameters
            self.remember(released_schema(stored.plan), flat, parameters_digest(flat))

    def seal(
        self,
        schema: Schema,
        flat: FlatVector,
        payload: Payload,
        *,
        round_number: int,
        base_sha256: bytes,
        sender: Identity,
    ) -> SealedModel:
        """Sign and encrypt a round's parameters, float32 ``(elements,)``, in every form; blocks."""

        def sealed(content: Payload, schema_sha256: bytes) -> Downlink:
            return Downlink.seal(
                content,
                run=self._run,
                round_number=round_number,
                base_sha256=base_sha256,
                schema_sha256=schema_sha256,
                sender=sender,
            )

        if self._settings is None:
            return SealedModel(sealed(payload, schema.sha256))
        step = self._settings.downlink_step
        whole = sealed(encode_delta(schema, None, flat, step), delta_sha256(schema, None))
        moved = {
            one.sha256: sealed(
                encode_delta(schema, one.flat, flat, step), delta_sha256(schema, one.sha256)
            )
            for one in tuple(self._earlier)
            if one.schema == schema and one.sha256 != base_sha256
        }
        return SealedModel(whole, moved)
