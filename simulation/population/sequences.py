"""Draw clients whose examples are made up: sequences to copy, to reverse or to translate.

Clients share the rule, and the dictionary of ``translate``, but no pair. Each has
``data.pairs_per_client`` pairs, too few to teach the rule alone, and holds out a quarter as many.
"""

from typing import get_args

import torch

from models.settings.seq2seq import Seq2SeqSettings
from models.tasks.sequence import Rule, SequencePairs, draw_pairs
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population, PopulationError, client_name

RULES: tuple[Rule, ...] = get_args(Rule)
_HELD_OUT_SHARE = 4


def build_sequence_population(config: SimulationConfig) -> Population:
    """Draw the population of the rule that the configuration names as its data set.

    Sequences have between half of the longest length and all of it, the longest that the model
    reads: short ones would be the same in training and test.

    Raises:
        PopulationError: If data or model are not those of sequences.
    """
    data, model = config.data, config.model
    if not isinstance(model, Seq2SeqSettings):
        raise PopulationError('task "sequence" needs model.family = "seq2seq"')
    rule = next((known for known in RULES if known == data.dataset), None)
    if rule is None:
        raise PopulationError(
            f"data set of sequences must be one of {', '.join(RULES)}, got {data.dataset!r}"
        )
    if data.pairs_per_client is None or data.client_count is None:
        raise PopulationError("sequences need data.pairs_per_client and data.client_count")
    longest = model.context_size - 1
    generator = torch.Generator().manual_seed(data.seed)

    def draw(count: int) -> SequencePairs:
        return draw_pairs(
            rule,
            count,
            symbol_count=model.symbol_count,
            lengths=(longest // 2 + 1, longest),
            generator=generator,
        )

    held_out = max(1, data.pairs_per_client // _HELD_OUT_SHARE)
    drawn = {
        client_name(number): (draw(data.pairs_per_client), draw(held_out))
        for number in range(1, data.client_count + 1)
    }
    return Population(
        clients={name: train for name, (train, _) in drawn.items()},
        own_test={name: test for name, (_, test) in drawn.items()},
        held_out={},
        notes=(f"the sequences are made up: {rule}",),
    )
