"""Take each client's upload into a round's sum: split it, clip it again, or reject it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from models.networks.role_vectors import part_of
from models.vector.schema import Role, Schema
from privacy.clipping.clip import UnusableUpdateError, clip
from privacy.noise.mode import Arrival
from privacy.noise.settings import PrivacySettings
from server.aggregation.measured_update import Measured
from server.aggregation.rule import AggregationRule
from server.aggregation.screening import Screen
from server.personalisation.method import ServerHalf


@dataclass(frozen=True)
class Examined:
    """All that can be seen of one upload without the others, so that any thread may look.

    Attributes:
        shared: Its shared part, with whether it fitted.
        generated: Its generated part as it arrived, if there is one.
        clipped: The generated part within its clip.
        measured: The shared part's norms.
        error: Why the upload is unusable; the rest may be missing then.
    """

    shared: Tensor
    generated: Tensor | None = None
    clipped: Tensor | None = None
    measured: Measured | None = None
    error: UnusableUpdateError | None = None


@dataclass(frozen=True)
class Contribution:
    """One client's update, opened.

    Attributes:
        slot: Position in the cohort, from 0; fixes the order of the sum.
        update: Contiguous float32 in the layout of ``models.plan.plan.upload_schema``.
        example_count: Target tokens the client says it trained on.
        client_name: Needed by methods with generated tensors.
        examined: What ``server.closing.close.Closing.examine`` made of the update, if it was
            looked at where it was opened.
    """

    slot: int
    update: Tensor
    example_count: int
    client_name: str = ""
    examined: Examined | None = None


class UploadSplit:
    """The split of an upload; generated tensors are clipped again unless noised (``Arrival``)."""

    def __init__(self, schema: Schema, arrival: Arrival, privacy: PrivacySettings) -> None:
        """Split uploads of one round.

        Raises:
            ValueError: If generated tensors arrive with clean norms, which do not cover them.
        """
        self._generates = bool(schema.with_roles(Role.GENERATED).tensors)
        if self._generates and arrival is Arrival.NOISED_WITH_CLEAN_NORMS:
            raise ValueError('score = "clean" knows no generated tensors; set score = "arrived"')
        self._element_count = schema.element_count + privacy.tells_fit
        self._clipping_norm = privacy.clipping_norm if arrival is Arrival.CLIPPED else None
        self._schema = schema
        self._parts = schema.with_roles(Role.SHARED), schema.with_roles(Role.GENERATED)

    def __call__(self, upload: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the shared part, with whether it fitted, and the generated one if there is one.

        Raises:
            ValueError: If the upload has another size.
        """
        if not self._generates:
            return upload, None
        if upload.shape != (self._element_count,):
            raise ValueError(
                f"client update must have shape ({self._element_count},), got {tuple(upload.shape)}"
            )
        # Whether it fitted is told behind the update, and goes with what the rule takes.
        values, told = upload[: self._schema.element_count], upload[self._schema.element_count :]
        shared, generated = (part_of(values, self._schema, part) for part in self._parts)
        return torch.cat([shared, told]), generated

    def clip_generated(self, generated: Tensor) -> Tensor:
        """Return the generated tensors of a client, within the clip where they must be.

        Raises:
            UnusableUpdateError: If they are not finite, or too large to be measured.
        """
        return clip(generated, self._clipping_norm)[0]

    def examine(
        self, upload: Tensor, measure: Callable[[Tensor], Measured] | None = None
    ) -> Examined:
        """Return what can be seen of an upload by itself; changes nothing.

        Without ``measure`` the norms of its shared part are left to the rule.

        Raises:
            ValueError: If the upload has another size.
        """
        shared, generated = self(upload)
        try:
            clipped = None if generated is None else self.clip_generated(generated)
            measured = None if measure is None else measure(shared)
            return Examined(shared, generated, clipped, measured)
        except UnusableUpdateError as error:
            return Examined(shared, error=error)


@dataclass(frozen=True)
class Summing:
    """A sum of contributions; without a screen an unusable one raises its error."""

    rule: AggregationRule
    server_half: ServerHalf
    split: UploadSplit
    example_cap: int | None
    screen: Screen | None

    def add(self, contribution: Contribution) -> None:
        """Add both parts of a contribution, or neither.

        Raises:
            UnusableUpdateError: If it is unusable and nothing screens (names its slot).
            ValueError: If it has another size than it must.
        """
        count = contribution.example_count
        count = count if self.example_cap is None else min(count, self.example_cap)
        slot, seen = contribution.slot, contribution.examined
        try:
            # Before anything is added: both parts must be usable, or neither counts.
            seen = seen or self.split.examine(contribution.update)
            if seen.error is not None:
                raise UnusableUpdateError(f"slot {slot}: {seen.error}")
            self.rule.add(slot, seen.shared, count, beside=seen.generated, measured=seen.measured)
        except UnusableUpdateError as error:
            if self.screen is None:
                raise
            self.screen.refuse(slot, error)
            # What lags behind counts updates that were added, and this one was not.
            self.rule.settle()
            return
        if seen.clipped is not None:
            self.server_half.take(contribution.client_name, seen.clipped, count)
