"""Whom a plan hides a device's text from, and what such a plan may therefore not ask.

Under ``local`` and ``masked``, and with ``example_privacy``, the coordinator itself is an onlooker:
it learns what devices' noise lets through, and nothing else. So whatever else a device does,
whether, when it may and with what it answers, must follow from the plan, the model and noised
values alone. Such a plan is refused for what it is, before any text is read; what the text makes of
a plan that was accepted never shows (``edge_client.training.local_round``). No torch.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from models.plan.plan import Plan, PlanError
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.masked_settings import MaskedNoise

LARGEST_SETTING = 1e6
"""Largest step size, norm or strength of a plan that hides text; no training has one of 1,000."""

LEAST_EXAMPLE_CLIP = 1e-6
"""Least clip of one example: below it float32 loses parts of a norm that the clip should see."""

_LEAVES_IN_THE_CLEAR = ("evaluate", "fit_embedding")


def hides_from_coordinator(plan: Plan) -> bool:
    """Return whether the coordinator is among those whom the plan hides a device's text from."""
    hides_all = isinstance(plan.privacy, LocalNoise | MaskedNoise)
    return hides_all or plan.training.example_privacy is not None


def check_hiding(plan: Plan) -> None:
    """Refuse what no honest plan that hides text asks for; accept every other plan as it is.

    Raises:
        PlanError: If counts or an embedding would leave without the device's noise, or a number is
            so large that training would leave the finite numbers, and say so about the text.
    """
    if not hides_from_coordinator(plan):
        return
    if plan.kind in _LEAVES_IN_THE_CLEAR:
        raise PlanError(
            f'kind "{plan.kind}" must not be asked by a plan that hides text from the coordinator: '
            "what it sends leaves without the device's noise"
        )
    numbers = {"clipping_norm": plan.privacy.clipping_norm}
    for part in ("training", "personalisation", "embedding_fit"):
        numbers |= dict(_numbers(msgspec.to_builtins(getattr(plan, part)), part))
    for name, value in numbers.items():
        if value is not None and not value <= LARGEST_SETTING:
            raise PlanError(f"{name} must be <= {LARGEST_SETTING:g} in such a plan, got {value:g}")
    private = plan.training.example_privacy
    if private is not None and private.clipping_norm < LEAST_EXAMPLE_CLIP:
        raise PlanError(
            f"example_privacy.clipping_norm must be >= {LEAST_EXAMPLE_CLIP:g}, "
            f"got {private.clipping_norm:g}"
        )


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:  # Any: settings as builtins
    """Yield the floats in settings, each with the path of its key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}.{key}")
    elif isinstance(value, float):
        yield name, value
