"""Open sealed updates that the coordinator may see: as flat float32, measured on arrival."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.compression.update_format import UpdateFormats
from models.vector.codec import CodecError
from models.vector.codec import check_finite as check_elements
from privacy.clipping.clip import UnusableUpdateError, check_finite
from privacy.identities.party import Identity
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError
from server.uplink.sealed_payloads import PayloadOpener, SealedUpdate


class UpdateOpener(PayloadOpener[Tensor]):
    """An opener of updates, flat float32 of shape ``(elements,)``: where they lie, if plain."""

    def __init__(
        self,
        arrives_as: UpdateFormats,
        identity: Identity,
        *,
        measure: Callable[[Tensor], object] = check_finite,
        buffer_count: int = 2,
        worker_count: int | None = None,
    ) -> None:
        """Prepare memory for the updates that are open at one time.

        Args:
            identity: The coordinator, to whom updates are sealed.
            measure: Raises ``UnusableUpdateError`` for an update that could not be aggregated.
            buffer_count: Updates held at one time; see ``update_buffers.buffer_count_for``.
            worker_count: Workers of a close; None is as many as the machine's cores allow.
        """
        super().__init__(arrives_as, identity, buffer_count=buffer_count, worker_count=worker_count)
        self._formats, self._measure = arrives_as, measure

    def take_format(
        self, arrives_as: UpdateFormats, *, measure: Callable[[Tensor], object], buffer_count: int
    ) -> None:
        """Open updates of another plan, between rounds, in at least ``open_at_once`` buffers."""
        self._take_forms(arrives_as, buffer_count)
        self._formats, self._measure = arrives_as, measure

    def check(self, sealed: SealedUpdate) -> bytes:
        """Check that every element is finite, and measure; see ``PayloadOpener.check``."""
        with self.opened(sealed) as (update, signing_sha256):
            try:
                check_elements(self._formats.schema, update.numpy())
                self._measure(update)
            except (CodecError, UnusableUpdateError) as error:
                raise RefusedError(RefusalCode.MALFORMED_UPDATE, str(error)) from None
            return signing_sha256

    def _content(self, payload: memoryview, round_number: int) -> Tensor:
        return torch.from_numpy(self._formats.of_round(round_number).decode(payload))
