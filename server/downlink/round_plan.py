"""Make the plan of a round: the settings, as the run has brought them about by then."""

from collections.abc import Sequence

import msgspec

from models.plan.plan import Plan, PlanKind
from models.plan.stages import plan_at_stage
from models.text.vocabulary import Vocabulary
from privacy.noise.plan_events import sampled_places
from server.config.federation import FederationConfig
from server.config.plans import make_plan


def round_plan(
    config: FederationConfig,
    run: str,
    vocabulary: Vocabulary | None,
    members: Sequence[str] | None,
    *,
    kind: PlanKind = "train",
    clipping_norm: float | None = None,
    growth_stage: int | None = None,
) -> Plan:
    """Return the plan of a round of the run, whose identifier is 32 hex digits.

    ``members`` is None for ``first-come``; the settings stand in for a norm or stage of None.
    """
    # How many were drawn by secret coins is secret; the places are not.
    places = sampled_places(config.rounds, config.privacy)
    size = config.rounds.cohort_size if places is None else places
    drawn = 1 if members is None else len(members)
    if clipping_norm is not None:
        privacy = msgspec.structs.replace(config.privacy, clipping_norm=clipping_norm)
        config = msgspec.structs.replace(config, privacy=privacy)
    plan = make_plan(
        config,
        run,
        kind,
        cohort_size=drawn if size is None else size,
        vocabulary=vocabulary,
    )
    return plan if growth_stage is None else plan_at_stage(plan, growth_stage)
