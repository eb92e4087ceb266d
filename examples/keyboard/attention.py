"""See what attention does: the weight of each device in each layer, from a round without noise.

The devices' own training and the coordinator's own closing, called in this process: weights are
functions of private updates, so no deployment publishes them under a guarantee.
"""

from pathlib import Path

import msgspec
import torch
from torch import Tensor

from edge_client.child.own_text import training_examples
from edge_client.training.local_round import LocalTrainer
from models.settings.model import schema_of
from models.text.vocabulary import Vocabulary
from privacy.noise.settings import NoNoise
from server.aggregation.rule import AggregationWeights
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from server.config.federation import FederationConfig
from server.config.plans import make_plan


def attention_weights(
    config: FederationConfig, texts: tuple[Path, ...], words: Vocabulary, parameters: Tensor
) -> AggregationWeights:
    """Return the weights of a round from ``parameters`` in mode ``none``."""
    privacy = NoNoise(clipping_norm=config.privacy.clipping_norm)
    config = msgspec.structs.replace(config, privacy=privacy)
    plan = make_plan(config, run="0" * 32, cohort_size=len(texts), vocabulary=words)
    trainer = LocalTrainer(plan)
    results = [
        trainer.train(
            parameters,
            training_examples(text, words),
            round_number=1,
            client_name=text.parent.name,
        )
        for text in texts
    ]
    weights = close_round(
        parameters,
        [
            Contribution(slot, result.update, result.example_count)
            for slot, result in enumerate(results)
        ],
        Closing(
            schema=schema_of(config.model),
            aggregation=config.aggregation,
            privacy=privacy,
            slot_count=len(texts),
            generator=torch.Generator().manual_seed(config.seed),
        ),
    ).aggregation_weights
    if weights is None:
        raise ValueError(f"aggregation rule {config.aggregation} has no weights to show")
    return weights
