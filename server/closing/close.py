"""Close a round: from the cohort's updates to the next parameters.

Simulation and deployment call this one function, so a simulated and a deployed round that saw the
same updates end in the same bits. It holds one model and one update at a time, whatever the cohort;
with a robust rule, 1 MiB of every update (``server.aggregation.robust.kept_updates``), and with one
that looks back, a second model.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108, Eq. 4 (the server's step).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from models.networks.role_vectors import part_of, put_part
from models.vector.schema import RELEASED, SENT, Role, Schema
from models.vector.seeds import client_seed
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.mode import NoiseMode
from privacy.noise.registry import noise_mode
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys
from privacy.noise.settings import PrivacySettings
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationWeights
from server.aggregation.screening import Screen
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AggregationSettings, MeanSettings
from server.closing.next_clipping_norm import clipping_norm_after
from server.closing.release_steps import round_at_random
from server.closing.summing import Contribution, Summing, UploadSplit
from server.personalisation.joint_noise import calibrate_round
from server.personalisation.method import ServerHalf
from server.personalisation.nothing_generated import NothingGenerated
from server.personalisation.round_terms import RoundTerms

# The server's own draws have a seed of their own; a device is never called this.
_COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Closed:
    """Hold the outcome of a round.

    Attributes:
        parameters: The next released parameters, flat float32, shape ``(elements,)``.
        contribution_count: Clients in the aggregate.
        clipped_count: Clients whose update the server had to clip: no honest one.
        aggregation_weights: What each client weighed; None where the noise mode guarantees
            privacy (weights are functions of private updates) or the rule has no weights.
        next_clipping_norm: C of the next round where it follows the clients', in parameter units;
            else None.
        screened: How many contributions were set aside, by reason.
        next_typical_norm: What the next round's screen starts from; None where norms are not
            followed.
    """

    parameters: Tensor
    contribution_count: int
    clipped_count: int
    aggregation_weights: AggregationWeights | None
    next_clipping_norm: float | None = None
    screened: Mapping[str, int] = field(default_factory=dict)
    next_typical_norm: float | None = None


def noise_generator(run_seed: int, round_number: int) -> torch.Generator:
    """Return the source of a round's uncalibrated draws at the server, deployed or simulated.

    Args:
        run_seed: Seed of the run, as the plan carries it.
        round_number: Round, from 1; each of its attempts draws alike.
    """
    seed = client_seed(run_seed, round_number, _COORDINATOR, purpose="noise")
    return torch.Generator().manual_seed(seed)


def close_round(
    parameters: Tensor,
    contributions: Iterable[Contribution],
    *,
    schema: Schema,
    aggregation: AggregationSettings,
    privacy: PrivacySettings,
    slot_count: int,
    generator: torch.Generator,
    example_cap: int | None = None,
    personalisation: ServerHalf | None = None,
    round_number: int | None = None,
    noise_keys: NoiseKeys | None = None,
    spool_folder: Path | None = None,
    screen: Screen | None = None,
    release_step: float | None = None,
    earlier: Tensor | None = None,
) -> Closed:
    """Clip again, aggregate, add the server's noise and step.

    Args:
        parameters: Released parameters that the cohort received, shared and frozen ones, flat
            float32, shape ``(elements,)``.
        contributions: In slot order; each may be made when asked for, and is let go, its memory
            free for the next, once added.
        schema: The tensors that the cohort received. Those with role ``generated`` go to
            ``personalisation``, those with role ``frozen`` stay as they are, and there may be no
            ``personal`` ones.
        aggregation: The rule and the server step size.
        privacy: Clipping norm and noise mode.
        slot_count: Places of the round, M, filled or not: a bound on the contributions, whatever
            their slots are numbered (over-selection leases more slots than places).
        generator: Source of the server's uncalibrated draws; of ``noise_generator``.
        example_cap: Largest example count a client is weighted by; None for no cap.
        personalisation: Server half of the method; None is ``global``. It learns last, and
            only from a round that came to an end.
        round_number: Round, from 1; needed by calibrated noise of the server's.
        noise_keys: Keys of that noise; None draws them from the operating system, which only
            mode ``ftrl`` cannot do with.
        spool_folder: Where a rule that reads updates again keeps them meanwhile, sealed and
            nameless; the system's temporary folder if absent.
        screen: Sets contributions aside that cannot count, and has counted them afterwards; None
            ends the round with an error instead.
        release_step: Rounds the outcome to multiples of it, at random, after all noise; None
            leaves it as it is.
        earlier: Parameters of an earlier release, like ``parameters``, for a rule that looks back
            (``server.releases.earlier_releases``), overwritten; None where none has the same
            tensors.

    Raises:
        ValueError: If a contribution is unusable and nothing screens (names its slot), none came
            where an empty place weighs nothing, the settings do not go together, or the result is
            not finite. Nothing is changed then.
    """
    mode = noise_mode(privacy)
    _check_roles(schema, privacy)
    released, sent = schema.with_roles(*RELEASED), schema.with_roles(*SENT)
    shared = schema.with_roles(Role.SHARED)
    server_half = personalisation or NothingGenerated(sent)
    _check_parameters(parameters, released)
    calibrated, taught = None, None
    if mode.adjacency is not None:
        calibrated, taught = calibrate_round(
            aggregate_sensitivity(
                aggregation, shared, privacy, slot_count=slot_count, adjacency=mode.adjacency
            ),
            server_half.sensitivity(slot_count, mode.adjacency),
            round_number=round_number,
            keys=noise_keys or SystemKeys(),
            shares_tensors=bool(shared.tensors),
        )
    rule = build_rule(
        aggregation,
        shared,
        slot_count=slot_count,
        clipping_norm=privacy.clipping_norm,
        arrival=mode.arrival,
        tensor_clips=_shared_clips(privacy, sent),
        tells_fit=privacy.tells_fit,
        under_guarantee=calibrated is not None,
        folder=spool_folder,
        screen=screen,
        heading=None if earlier is None else _heading(parameters, earlier, released, shared),
    )
    server_half.begin(_terms(aggregation, privacy, slot_count, is_noised=calibrated is not None))
    summing = Summing(
        rule, server_half, UploadSplit(sent, mode.arrival, privacy), example_cap, screen
    )
    for contribution in contributions:
        summing.add(contribution)
        del contribution  # Let go before the next one is made.
    weights = None if privacy.guarantees_privacy else rule.weights()
    next_norm = clipping_norm_after(
        privacy, rule, slot_count=slot_count, generator=generator, calibrated=calibrated
    )
    aggregate = rule.result()
    if len(aggregate):  # A method may share nothing.
        aggregate = mode.at_server(aggregate, generator, calibrated)
    before = _shared_of(parameters, released, shared)
    after = _stepped(before, aggregate, aggregation.server_step_size, mode, generator)
    if release_step is not None:
        after = round_at_random(after, release_step, generator)
    server_half.close(
        None if taught is None else lambda gradient: mode.at_server(gradient, generator, taught)
    )
    return Closed(
        after if shared == released else _beside_frozen(after, parameters, released, shared),
        rule.contribution_count,
        rule.clipped_count,
        weights,
        next_norm,
        {} if screen is None else screen.counts,
        None if screen is None else screen.next_typical_norm,
    )


def _stepped(
    before: Tensor, aggregate: Tensor, step_size: float, mode: NoiseMode, generator: torch.Generator
) -> Tensor:
    """Return the parameters after the server's step, in the aggregate's memory if they may be.

    Raises:
        ValueError: If they are not finite.
    """
    stepped = torch.add(before, aggregate, alpha=step_size, out=aggregate)
    after = mode.after_step(stepped.float(), generator)
    _check_finite(after)
    return after


def _shared_of(parameters: Tensor, released: Schema, shared: Schema) -> Tensor:
    """Return what is trained of a release: no copy where that is all of it."""
    return parameters if shared == released else part_of(parameters, released, shared)


def _heading(parameters: Tensor, earlier: Tensor, released: Schema, shared: Schema) -> Tensor:
    """Return how far the model has come, in the memory of the earlier one if that may be."""
    since = _shared_of(earlier, released, shared)
    return torch.sub(_shared_of(parameters, released, shared), since, out=since)


def _beside_frozen(trained: Tensor, before: Tensor, released: Schema, shared: Schema) -> Tensor:
    """Return all that is released: what was trained, and the rest as it was."""
    after = before.clone()
    put_part(after, released, shared, trained)
    return after


def _check_roles(schema: Schema, privacy: PrivacySettings) -> None:
    if schema.with_roles(Role.PERSONAL).tensors:
        raise ValueError("schema must hold no personal tensor: those never leave a device")
    if isinstance(privacy, TreeNoise) and schema.with_roles(Role.GENERATED).tensors:
        raise ValueError(
            "a tree of noise covers sums of the shared tensors only, and the schema has generated "
            'ones; set privacy.mode = "central"'
        )


def _terms(
    aggregation: AggregationSettings, privacy: PrivacySettings, slot_count: int, *, is_noised: bool
) -> RoundTerms:
    """Weigh what teaches the method as the mean would: by examples, unless all weigh alike."""
    equal = isinstance(aggregation, MeanSettings) and aggregation.weighting == "equal"
    return RoundTerms(
        slot_count, "equal" if equal or privacy.guarantees_privacy else "examples", is_noised
    )


def _shared_clips(privacy: PrivacySettings, schema: Schema) -> tuple[float, ...] | None:
    """Return the clips of the shared tensors, where each tensor has its own."""
    clips = privacy.tensor_clips(len(schema.tensors))
    if clips is None:
        return None
    pairs = zip(schema.tensors, clips, strict=True)
    return tuple(tensor_clip for tensor, tensor_clip in pairs if tensor.role is Role.SHARED)


def _check_parameters(parameters: Tensor, released: Schema) -> None:
    shape = (released.element_count,)
    if parameters.shape != shape or parameters.dtype != torch.float32:
        raise ValueError(
            f"parameters must be float32 of shape {shape}, "
            f"got {parameters.dtype} of shape {tuple(parameters.shape)}"
        )


def _check_finite(released: Tensor) -> None:
    if not released.numel():  # A method may share nothing.
        return
    # One read and no copy; NaN passes through the minimum.
    least, largest = torch.aminmax(released)
    if not (math.isfinite(float(least)) and math.isfinite(float(largest))):
        raise ValueError("the new parameters must be finite; lower server_step_size or clip")
