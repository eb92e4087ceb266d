"""Measure which words of a client's text one round gives away, to whom.

The operator sees the upload as the noise mode lets it leave the device, under its mask where it has
one; a reader of the model sees only what the release changed. Both are made by a run's own code. An
observer of several rounds learns more than these figures say.
"""

import os
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from edge_client.training.local_round import LocalTrainer
from models.masked.layout import MaskedLayout, layout_if_masked
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, download_schema, plan_schema, released_schema
from models.text.vocabulary import EOS
from models.vector.schema import SENT, Schema
from privacy.auditing.leakage import WordLeakage, word_leakage
from privacy.auditing.scores import AuditError
from privacy.masking.grid import from_grid
from privacy.masking.keystream import SEED_BYTES
from privacy.masking.mask import masked
from privacy.masking.packing import unpack
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from simulation.auditing.coordinator import fresh_keys
from simulation.auditing.mechanism import slot_count_of
from simulation.config.simulation import SimulationConfig
from simulation.population.population import TextPopulation
from simulation.rounds.masked_round import close_without_masks

LARGEST_COHORT = 8
"""Clients whose uploads are measured at most: more only make the mean steadier."""

_ROWS, _BIAS = "embedding.weight", "output.bias"


class RoundLeakage(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a member that a round gives away by its upload and the release, on average."""

    upload: WordLeakage
    release: WordLeakage
    client_count: int


def round_leakage(
    config: SimulationConfig,
    plan: Plan,
    population: TextPopulation,
    parameters: Tensor,
    *,
    round_number: int = 1,
) -> RoundLeakage:
    """Train a cohort for one round, close it, and guess each member's words.

    The round starts from ``parameters``, flat float32, shape ``(elements,)``; its number, from 1,
    fixes the clients' draws.

    Raises:
        AuditError: If the model has no embedding and output bias by word, or the update is not
            finite.
        UnusableUpdateError: If training ended in NaN or infinity.
    """
    schema = plan_schema(plan).with_roles(*SENT)
    _check_words(schema)
    slot_count = slot_count_of(config, len(population.clients))
    names = list(population.clients)[: min(LARGEST_COHORT, slot_count)]
    trainer = LocalTrainer(plan, seeded=True)
    contributions = [
        _contribution(
            trainer, population, parameters, slot=slot, name=name, round_number=round_number
        )
        for slot, name in enumerate(names)
    ]
    closing = Closing(
        schema=download_schema(plan),
        aggregation=config.aggregation,
        privacy=config.privacy,
        slot_count=slot_count,
        generator=torch.Generator().manual_seed(config.seed),
        example_cap=config.training.example_cap,
        round_number=round_number,
        noise_keys=fresh_keys(),
    )
    layout = layout_if_masked(plan)
    if layout is None:
        closed = close_round(parameters, contributions, closing)
        uploads = [contribution.update for contribution in contributions]
    else:
        closed = close_without_masks(
            parameters, contributions, layout, closing, quorum=len(contributions)
        )
        uploads = [masked_upload(one.update, layout) for one in contributions]
    change = part_of(closed.parameters - parameters, released_schema(plan), schema)
    streams = [population.clients[name] for name in names]
    return RoundLeakage(
        upload=_mean(
            [
                _leakage(upload, schema, stream)
                for upload, stream in zip(uploads, streams, strict=True)
            ]
        ),
        release=_mean([_leakage(change, schema, stream) for stream in streams]),
        client_count=len(names),
    )


def masked_upload(vector: Tensor, layout: MaskedLayout) -> Tensor:
    """Return an upload as the coordinator reads it: under its mask, as if there were none.

    ``vector`` is as ``simulation.rounds.masked_round`` has it; the result is float32, shape
    ``(elements,)``, in clipping norms.
    """
    bits = layout.grid.bits
    values = vector.view(torch.int32).numpy().astype(np.int64)
    packed = masked(values, os.urandom(SEED_BYTES), bits=bits)
    whole = unpack(packed, layout.element_count, bits)
    read = from_grid(whole[: layout.noised_count], layout.grid)
    return torch.from_numpy(read[: layout.schema.element_count]).float()


def _contribution(
    trainer: LocalTrainer,
    population: TextPopulation,
    parameters: Tensor,
    *,
    slot: int,
    name: str,
    round_number: int,
) -> Contribution:
    result = trainer.train(
        parameters, population.clients[name], round_number=round_number, client_name=name
    )
    return Contribution(slot, result.update, result.example_count, name)


def _leakage(update: Tensor, schema: Schema, stream: Tensor) -> WordLeakage:
    """Return how well an update tells the words of a text, but for ``<unk>`` and ``<eos>``."""
    words = schema.tensors[0].shape[0]
    rows = update[schema.slices[_ROWS]].view(words, -1)
    bias = update[schema.slices[_BIAS]]
    typed = torch.zeros(words, dtype=torch.bool)
    typed[stream] = True
    first = EOS + 1
    # The word list is in the order of frequency.
    return word_leakage(
        rows[first:].numpy(),
        bias[first:].numpy(),
        -torch.arange(first, words).double().numpy(),
        typed[first:].numpy(),
    )


def _mean(leakages: Sequence[WordLeakage]) -> WordLeakage:
    means = {
        name: statistics.fmean(getattr(leakage, name) for leakage in leakages)
        for name in WordLeakage.__struct_fields__
    }
    return WordLeakage(**means)


def _check_words(schema: Schema) -> None:
    if schema.tensors[0].name != _ROWS or _BIAS not in schema.slices:
        raise AuditError(
            f"the model must have {_ROWS} and {_BIAS}, one row a word, and train both; "
            "leakage is measured for next-word models"
        )
