"""Close a round: from the cohort's updates to the next parameters.

Simulation and deployment call this one function, so the same updates and noise end in the same
bits, whatever the number of workers. It holds one model and two updates for each worker, whatever
the cohort; with a robust rule also 1 MiB of every update
(``server.aggregation.robust.kept_updates``), and with one that looks back a second model.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108, Eq. 4 (the server's step).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from models.networks.role_vectors import part_of, put_part
from models.vector.schema import RELEASED, SENT, Role, Schema
from models.vector.seeds import client_seed
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.mode import CalibratedRound, NoiseMode
from privacy.noise.registry import noise_mode
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys
from privacy.noise.settings import PrivacySettings, noises_sums
from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.measured_update import IntakeSettings
from server.aggregation.noised_sums import SumsForm, sums_form, weights_after
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationRule, AggregationWeights
from server.aggregation.screening import Screen
from server.aggregation.sensitivity import noised_sensitivity
from server.aggregation.settings import AggregationSettings, MeanSettings
from server.closing.checks import check_finite, check_parameters, check_roles
from server.closing.next_clipping_norm import clipping_norm_after
from server.closing.release_steps import round_at_random
from server.closing.summing import Contribution, Examined, Summing, UploadSplit
from server.personalisation.joint_noise import calibrate_round
from server.personalisation.method import ServerHalf
from server.personalisation.nothing_generated import NothingGenerated
from server.personalisation.round_terms import RoundTerms

# The server's own draws have a seed of their own; a device is never called this.
_COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Closed:
    """The outcome of a round.

    Attributes:
        parameters: The next released parameters, flat float32, shape ``(elements,)``.
        clipped_count: Clients whose update the server had to clip, no honest one; None under masks.
        aggregation_weights: None if the noise mode guarantees privacy (weights are functions of
            private updates) or the rule has no weights.
        next_clipping_norm: C of the next round in parameter units, if it follows the clients'.
        screened: Rejected contributions by reason.
        next_typical_norm: Start of the next round's screen, if norms are followed.
        noised_weights: Total weight of each layer, in clients, noise included, if sums are noised;
            as public as the parameters.
        weights_so_far: Their sum over all rounds of the run, if a tree noises them.
    """

    parameters: Tensor
    contribution_count: int
    clipped_count: int | None
    aggregation_weights: AggregationWeights | None
    next_clipping_norm: float | None = None
    screened: Mapping[str, int] = field(default_factory=dict)
    next_typical_norm: float | None = None
    noised_weights: tuple[float, ...] | None = None
    weights_so_far: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The terms of a round's close: its settings, its noise and what it may look at.

    Attributes:
        schema: The tensors that the cohort received, none of them ``personal``. ``generated`` ones
            go to ``personalisation``, ``frozen`` ones stay as they are.
        slot_count: Places of the round, M, filled or not: a bound on the contributions, whatever
            their slot numbers (over-selection leases more slots than places).
        generator: Source of the server's uncalibrated draws; see ``noise_generator``.
        seeded: Whether the noise of mode ``paper-server`` comes from ``generator`` too, as in a
            simulation, and not from the operating system: whoever has the plan can take it out.
        example_cap: Largest example count by which a client is weighted; None for no cap.
        personalisation: Server half of the method; None is ``global``. It learns last, and only
            from a completed round.
        round_number: Needed by the server's calibrated noise.
        noise_keys: Keys of that noise, which mode ``ftrl`` needs; None draws them from the
            operating system.
        spool_folder: Folder of the sealed, nameless file of a rule that reads updates again; None
            is the system's temporary folder.
        screen: Rejects and counts unusable contributions; None ends the round with an error.
        release_step: Step to whose multiples the outcome is rounded at random, after all noise.
        earlier: Parameters of an earlier release for a rule that looks back
            (``server.releases.earlier_releases``), overwritten; None if none has the same tensors.
        weights_so_far: As the round before left them in ``Closed``; None in a run's first.
        workers: Share the work; one, the default, is the caller's own thread.
    """

    schema: Schema
    aggregation: AggregationSettings
    privacy: PrivacySettings
    slot_count: int
    generator: torch.Generator
    seeded: bool = False
    example_cap: int | None = None
    personalisation: ServerHalf | None = None
    round_number: int | None = None
    noise_keys: NoiseKeys | None = None
    spool_folder: Path | None = None
    screen: Screen | None = None
    release_step: float | None = None
    earlier: Tensor | None = None
    weights_so_far: tuple[float, ...] | None = None
    workers: ClosingWorkers = field(default_factory=ClosingWorkers)

    @cached_property
    def mode(self) -> NoiseMode:
        """Return what the noise mode does at each place."""
        return noise_mode(self.privacy)

    @cached_property
    def form(self) -> SumsForm | None:
        """Return the layout of the sums that are noised; None where their mean is."""
        if not noises_sums(self.privacy) or not self.shared.tensors:
            return None
        return sums_form(self.aggregation, self.shared, self.privacy, slot_count=self.slot_count)

    @cached_property
    def released(self) -> Schema:
        """Return the tensors that a release holds."""
        return self.schema.with_roles(*RELEASED)

    @cached_property
    def sent(self) -> Schema:
        """Return the tensors that a device sends."""
        return self.schema.with_roles(*SENT)

    @cached_property
    def shared(self) -> Schema:
        """Return the tensors that everyone trains and shares."""
        return self.schema.with_roles(Role.SHARED)

    @cached_property
    def split(self) -> UploadSplit:
        """Return the split of an upload into what the rule and the method take."""
        return UploadSplit(self.sent, self.mode.arrival, self.privacy)

    @cached_property
    def expected(self) -> IntakeSettings:
        """Return what the rule expects of the shared part of each upload."""
        return IntakeSettings(
            self.shared,
            self.slot_count,
            self.privacy.clipping_norm,
            self.mode.arrival,
            tensor_clips=_shared_clips(self.privacy, self.sent),
            tells_fit=self.privacy.tells_fit,
        )

    def examine(self, update: Tensor) -> Examined:
        """Look at one upload in any thread, ahead of its turn; see ``Contribution.examined``."""
        return self.split.examine(update, self.expected.measure)


def noise_generator(run_seed: int, round_number: int) -> torch.Generator:
    """Return the source of a round's draws that hide nothing; all its attempts draw alike."""
    seed = client_seed(run_seed, round_number, _COORDINATOR, purpose="noise")
    return torch.Generator().manual_seed(seed)


def close_round(
    parameters: Tensor, contributions: Iterable[Contribution], closing: Closing
) -> Closed:
    """Clip again, aggregate, add the server's noise and step.

    Args:
        parameters: Released parameters that the cohort received, shared and frozen, flat float32,
            shape ``(elements,)``.
        contributions: In slot order; each is released once added, so it may be made when asked
            for. An update is read until ``closing.workers.lag`` + 1 further ones were asked for,
            the last ones until this returns.

    Raises:
        ValueError: If a contribution is unusable and nothing screens (names its slot), none came
            where an empty place weighs nothing, the settings do not go together, or the result is
            not finite. Nothing is changed then.
    """
    privacy, screen, generator = closing.privacy, closing.screen, closing.generator
    check_roles(closing.schema, privacy)
    check_parameters(parameters, closing.released)
    server_half = closing.personalisation or NothingGenerated(closing.sent)
    calibrated, taught = _calibrated(closing, server_half)
    rule = _rule(parameters, closing, under_guarantee=calibrated is not None)
    server_half.begin(_terms(closing, is_noised=calibrated is not None))
    # Every update is clipped again, added or set aside, and let go before the next one is made.
    summing = Summing(rule, server_half, closing.split, closing.example_cap, screen)
    for contribution in contributions:
        summing.add(contribution)
        del contribution
    weights = None if privacy.guarantees_privacy else rule.weights()
    next_norm = clipping_norm_after(
        privacy, rule, slot_count=closing.slot_count, generator=generator, calibrated=calibrated
    )
    # The noise comes before the step, and nothing that was not noised is used after it.
    noised = _noised(rule.result(), closing, calibrated)
    after = next_parameters(parameters, noised.aggregate, closing)
    server_half.close(
        None
        if taught is None
        else lambda gradient: closing.mode.at_server(gradient, generator, taught)
    )
    return Closed(
        after,
        rule.contribution_count,
        rule.clipped_count,
        weights,
        next_norm,
        {} if screen is None else screen.counts,
        None if screen is None else screen.next_typical_norm,
        noised.weights,
        noised.weights_so_far,
    )


class _Noised(NamedTuple):
    """The aggregate with the server's noise, and the weights as ``Closed`` tells them."""

    aggregate: Tensor
    weights: tuple[float, ...] | None = None
    weights_so_far: tuple[float, ...] | None = None


def _noised(aggregate: Tensor, closing: Closing, calibrated: CalibratedRound | None) -> _Noised:
    if not len(aggregate):  # A method may share nothing.
        return _Noised(aggregate)
    noised, form = closing.mode.at_server(aggregate, closing.generator, calibrated), closing.form
    if form is None:
        return _Noised(noised)
    totals, number = form.totals(noised), closing.round_number
    if not isinstance(closing.privacy, TreeNoise):
        return _Noised(form.divided(noised, totals), totals)
    so_far = weights_after(closing.weights_so_far, totals, round_number=number)
    divisors = [total / (number or 1) for total in so_far]
    return _Noised(form.divided(noised, divisors), totals, so_far)


def _calibrated(
    closing: Closing, server_half: ServerHalf
) -> tuple[CalibratedRound | None, CalibratedRound | None]:
    adjacency = closing.mode.adjacency
    if adjacency is None:
        return None, None
    sensitivity = noised_sensitivity(
        closing.aggregation,
        closing.shared,
        closing.privacy,
        slot_count=closing.slot_count,
        adjacency=adjacency,
    )
    return calibrate_round(
        sensitivity,
        server_half.sensitivity(closing.slot_count, adjacency),
        round_number=closing.round_number,
        keys=closing.noise_keys or SystemKeys(),
        shares_tensors=bool(closing.shared.tensors),
    )


def _rule(parameters: Tensor, closing: Closing, *, under_guarantee: bool) -> AggregationRule:
    expected = closing.expected
    return build_rule(
        closing.aggregation,
        expected.schema,
        slot_count=expected.slot_count,
        clipping_norm=expected.clipping_norm,
        arrival=expected.arrival,
        tensor_clips=expected.tensor_clips,
        tells_fit=expected.tells_fit,
        under_guarantee=under_guarantee,
        folder=closing.spool_folder,
        screen=closing.screen,
        heading=heading_of(parameters, closing),
        form=closing.form,
        workers=closing.workers,
    )


def next_parameters(before: Tensor, aggregate: Tensor, closing: Closing) -> Tensor:
    """Take the server's step along an aggregate, noise and all, and return what is released.

    Args:
        before: As ``parameters`` of ``close_round``; ValueError if they leave the finite numbers.
        aggregate: Of the shared tensors, shape ``(elements,)``; its memory may be used.
    """
    size = closing.aggregation.server_step_size
    stepped = torch.add(_shared_of(before, closing), aggregate, alpha=size, out=aggregate)
    after = closing.mode.after_step(stepped.float(), closing.generator if closing.seeded else None)
    check_finite(after)
    if closing.release_step is not None:
        after = round_at_random(after, closing.release_step, closing.generator)
    return _beside_frozen(after, before, closing)


def _shared_of(parameters: Tensor, closing: Closing) -> Tensor:
    if closing.shared == closing.released:
        return parameters
    return part_of(parameters, closing.released, closing.shared)


def heading_of(parameters: Tensor, closing: Closing) -> Tensor | None:
    """Return how far the model has come, in the memory of the earlier one if that may be."""
    if closing.earlier is None:
        return None
    since = _shared_of(closing.earlier, closing)
    return torch.sub(_shared_of(parameters, closing), since, out=since)


def _beside_frozen(trained: Tensor, before: Tensor, closing: Closing) -> Tensor:
    if closing.shared == closing.released:
        return trained
    after = before.clone()
    put_part(after, closing.released, closing.shared, trained)
    return after


def _terms(closing: Closing, *, is_noised: bool) -> RoundTerms:
    """Weigh what teaches the method as the mean would: by examples, unless all weigh alike."""
    aggregation = closing.aggregation
    equal = isinstance(aggregation, MeanSettings) and aggregation.weighting == "equal"
    equal = equal or closing.privacy.guarantees_privacy
    return RoundTerms(closing.slot_count, "equal" if equal else "examples", is_noised)


def _shared_clips(privacy: PrivacySettings, schema: Schema) -> tuple[float, ...] | None:
    clips = privacy.tensor_clips(len(schema.tensors))
    if clips is None:
        return None
    pairs = zip(schema.tensors, clips, strict=True)
    return tuple(tensor_clip for tensor, tensor_clip in pairs if tensor.role is Role.SHARED)
