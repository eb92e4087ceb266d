"""A federation whose hypernetwork makes each device's projections, a few hundred numbers in all."""

import torch

from models.vector.schema import Role
from server.personalisation.round_terms import RoundTerms
from server.releases.method_state import MethodState, method_state_of
from tests.server.sealing import configure

CONFIG = configure(
    model="""
family = "transformer_lm"
vocabulary_size = 10
model_size = 4
head_count = 1
layer_count = 1
feedforward_size = 4
context_size = 4
""",
    aggregation="""
rule = "mean"
weighting = "equal"
[personalisation]
method = "fedtp"
hypernetwork = { embedding_size = 3, hidden_size = 5, learning_rate = 0.5 }
""",
)
SHARED = CONFIG.schema.with_roles(Role.SHARED)
GENERATED = CONFIG.schema.with_roles(Role.GENERATED)


def taught(*clients: str) -> MethodState:
    """Return a state after one round in which these clients took part."""
    state = method_state_of(CONFIG)
    state.half.begin(RoundTerms(slot_count=len(clients), weighting="equal", is_noised=False))
    for position, client in enumerate(clients):
        state.half.take(client, torch.full((GENERATED.element_count,), 0.1 * (position + 1)), 1)
    state.half.close()
    return state
