"""Take up what a client kept when its model had fewer layers.

Personal tensors of new layers start as `models.networks.grown_layers` draws them; what the method
keeps beside the model starts as for a client that never trained. The loss of compression of another
stage, or under a plan that no longer keeps it, is useless now. It is dropped and logged.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from edge_client.personalisation.method import ClientHalf
from edge_client.personalisation.registry import build_client_half
from edge_client.personalisation.state import (
    PersonalState,
    PersonalStateError,
    StateLayout,
    read_state,
)
from models.networks.grown_layers import fresh_model, grow
from models.plan.plan import Plan, plan_schema
from models.plan.stages import earlier_stages
from models.vector.schema import Role, Schema

logger = logging.getLogger(__name__)


def kept_layout(plan: Plan, half: ClientHalf) -> StateLayout:
    """Return what a client's state holds under a plan; ``half`` is the plan's method's."""
    schema = plan_schema(plan)
    return StateLayout.of(schema, half.extra_tensors(schema), keeps_residual=_feeds_back(plan))


def read_kept_state(path: Path, plan: Plan, layout: StateLayout) -> PersonalState | None:
    """Return a client's state as the plan's model needs it, or None if it keeps none yet.

    Raises:
        PersonalStateError: If the file is damaged, or of no stage of this model and method.
    """
    try:
        return read_state(path, layout)
    except PersonalStateError:
        older = _older_state(path, plan)
        if older is None:
            raise
        return older


def _older_state(path: Path, plan: Plan) -> PersonalState | None:
    """Return the state of an earlier stage or another compression, grown; None if it is of none."""
    half = build_client_half(plan.personalisation)
    newer: list[Plan] = []
    for staged in (plan, *earlier_stages(plan)):
        state = _whatever_was_lost(path, staged, half)
        newer.append(staged)
        if state is not None:
            return _grown(state, newer[::-1], half)
    return None


def _whatever_was_lost(path: Path, plan: Plan, half: ClientHalf) -> PersonalState | None:
    """Return the state of a stage without what was lost, kept or not; None if it is of none."""
    schema = plan_schema(plan)
    for keeps_residual in (False, True):
        layout = StateLayout.of(schema, half.extra_tensors(schema), keeps_residual=keeps_residual)
        try:
            state = read_state(path, layout)
        except PersonalStateError:
            continue
        if state is None or state.residual is None:
            return state
        logger.warning("what compression lost of the last update is dropped: the plan has changed")
        return replace(state, residual=None)
    return None


def _grown(state: PersonalState, stages: Sequence[Plan], half: ClientHalf) -> PersonalState:
    for before, after in pairwise(stages):
        fresh = half.first_extras(plan_schema(after), fresh_model(after))
        personal = grow(state.personal, before, after, _personal)
        state = PersonalState(personal, {**fresh, **state.extras})
    return state


def _feeds_back(plan: Plan) -> bool:
    return plan.compression is not None and plan.compression.error_feedback


def _personal(plan: Plan) -> Schema:
    return plan_schema(plan).with_roles(Role.PERSONAL)
