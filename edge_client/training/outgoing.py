"""Make what a device sends of what it trained: clip, then noise, then compress, in this order only.

The device's own noise is added to what was clipped and not rounded, so compression is
post-processing of what the noise hides; the coordinator's is added after it has decoded the update
and clipped it again. Where the plan feeds the loss of compression back, the device keeps it and
adds it to the next update before clipping, so no update reaches beyond the clip because of it.

References:
    [EF] Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes",
        ICML 2019, arXiv:1901.09847, algorithm 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from models.compression.update_format import PlainFormat, UpdateFormat
from models.plan.plan import Plan
from models.vector.seeds import client_seed
from privacy.clipping.by_layer import clip_update
from privacy.noise.mode import Arrival
from privacy.noise.registry import noise_mode
from privacy.noise.settings import PrivacySettings


@dataclass(frozen=True)
class Outgoing:
    """One client's update as it leaves, with what is told beside it.

    Attributes:
        update: The update as it arrives, in the layout of ``models.plan.plan.upload_schema``.
        norm: L2 norm of what was trained, with what was fed back, before clipping and noise.
        payload: The payload that travels; None where that is the update as it is.
        residual: The loss of compression, to be fed back; None where the plan does not ask for it.
    """

    update: Tensor
    norm: float
    payload: memoryview | None = None
    residual: Tensor | None = None


def outgoing_update(
    plan: Plan,
    update: Tensor,
    tensors: Sequence[slice],
    travels_as: UpdateFormat,
    *,
    round_number: int,
    client_name: str,
    clipping_norm: float | None = None,
    residual: Tensor | None = None,
    seeded: bool = False,
) -> Outgoing:
    """Clip an update, apply the client's half of the noise mode, and compress it.

    Args:
        update: Trained minus received, flat float32, shape ``(elements,)``; not changed.
        tensors: Where each tensor that is sent lies in it.
        travels_as: The plan's ``models.compression.update_format.update_format``.
        round_number: Round, from 1.
        clipping_norm: This round's, where it changes from round to round; else the plan's.
        residual: The loss of compressing this client's last update that counted.
        seeded: Whether uncalibrated noise follows from the plan's seed, as in a simulation; whoever
            has the plan can take it out.

    Raises:
        UnusableUpdateError: If an element is NaN or infinite.
        CodecError: If a value cannot be written in the plan's form.
    """
    privacy = plan.privacy
    if clipping_norm is not None:
        privacy = msgspec.structs.replace(privacy, clipping_norm=clipping_norm)
    clipped = clip_update(update if residual is None else update + residual, privacy, tensors)
    generator = None
    if seeded:
        seed = client_seed(plan.seed, round_number, client_name, purpose="randomisation")
        generator = torch.Generator().manual_seed(seed)
    sent = noise_mode(privacy).at_client(clipped.values, generator, tensors=tensors)
    told = torch.tensor([float(clipped.has_fitted)] if privacy.tells_fit else [])
    sent = torch.cat([sent, told]) if len(told) else sent
    if isinstance(travels_as, PlainFormat):
        return Outgoing(sent, clipped.norm)
    rounding = client_seed(plan.seed, round_number, client_name, purpose="rounding")
    payload = travels_as.encode(sent.numpy(), seed=rounding)
    arrives = torch.from_numpy(travels_as.decode(payload))
    lost = None
    if plan.compression is not None and plan.compression.error_feedback:
        lost = _lost(sent[: len(update)], arrives[: len(update)], privacy, tensors)
    return Outgoing(arrives, clipped.norm, payload, lost)


def _lost(
    sent: Tensor, arrives: Tensor, privacy: PrivacySettings, tensors: Sequence[slice]
) -> Tensor:
    """Return what of an update will not count, at most twice the clip where there is one."""
    if noise_mode(privacy).arrival is Arrival.CLIPPED:
        # Rounding may have made it longer than the clip, which the coordinator takes off again.
        arrives = clip_update(arrives, privacy, tensors).values
    return sent - arrives
