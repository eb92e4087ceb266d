"""How the updates of one plan leave: as they are, compressed, or as vectors to be masked."""

import msgspec
import torch
from torch import Tensor

from edge_client.training.masked_update import masked_vector
from edge_client.training.outgoing import Outgoing, outgoing_update
from models.compression.update_format import update_formats
from models.masked.layout import layout_if_masked
from models.plan.plan import Plan
from models.vector.schema import Schema
from privacy.clipping.by_layer import clip_update
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.secure_gaussian import NoiseKeys


class Departure:
    """The form in which the updates of one plan leave."""

    def __init__(self, plan: Plan, sent: Schema, keys: NoiseKeys, *, seeded: bool) -> None:
        """Derive the form from the plan.

        Args:
            sent: The tensors that are sent.
            keys: Keys of a masked vector's noise.
            seeded: As in ``edge_client.training.outgoing.outgoing_update``.

        Raises:
            ValueError: If no masked vector can be made of the plan's updates.
        """
        self._plan = plan
        self._tensors = list(sent.slices.values())
        self._formats = update_formats(plan)
        self._layout = layout_if_masked(plan)
        self._keys = keys
        self._seeded = seeded

    def outgoing(
        self,
        update: Tensor,
        *,
        round_number: int,
        client_name: str,
        example_count: int,
        clipping_norm: float | None = None,
        residual: Tensor | None = None,
    ) -> Outgoing:
        """Return what leaves; arguments and errors as in ``outgoing_update``."""
        privacy = self._plan.privacy
        if self._layout is None or not isinstance(privacy, MaskedNoise):
            return outgoing_update(
                self._plan,
                update,
                self._tensors,
                self._formats.of_round(round_number),
                round_number=round_number,
                client_name=client_name,
                clipping_norm=clipping_norm,
                residual=residual,
                seeded=self._seeded,
            )
        if clipping_norm is not None:
            privacy = msgspec.structs.replace(privacy, clipping_norm=clipping_norm)
        clipped = clip_update(update, privacy, self._tensors)
        vector = masked_vector(
            self._layout,
            clipped,
            privacy,
            example_share=example_count / self._plan.training.example_cap,
            keys=self._keys,
            label=f"round {round_number} client {client_name}",
        )
        return Outgoing(torch.from_numpy(vector), clipped.norm)
