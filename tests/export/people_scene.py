"""A release of a run in which two people have attention of their own."""

from pathlib import Path

import numpy as np
import torch

from export.releases.release import Release, read_release
from models.plan.plan import Plan, download_schema, plan_schema, released_schema
from models.settings.hypernetwork import HypernetworkSettings
from models.settings.model import TransformerLmSettings
from models.settings.personalisation import FedTpSettings
from models.text.vocabulary import Vocabulary
from models.vector.schema import Role
from models.vector.tensor_file import encode_tensors
from privacy.identities.party import Identity
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.registry import build_server_half
from server.personalisation.round_terms import RoundTerms
from server.releases.files import NewRelease, ReleaseFolder
from tests.export.conftest import WORDS, plan_of

FEDTP = FedTpSettings(
    hypernetwork=HypernetworkSettings(
        embedding_size=3, hidden_size=4, basis_size=2, learning_rate=0.5
    )
)
PERSONAL_SETTINGS = TransformerLmSettings(
    vocabulary_size=len(WORDS),
    model_size=4,
    head_count=2,
    layer_count=2,
    feedforward_size=8,
    context_size=8,
    tied=False,
)
PEOPLE = ("ada", "ben")


def release_with_people(
    folder: Path,
    vocabulary: Vocabulary | None,
    *,
    plan: Plan | None = None,
    signer: Identity | None = None,
    people: tuple[str, ...] = PEOPLE,
) -> Release:
    """Write a release into a folder's ``releases``; some people took part in its one round.

    Args:
        folder: Gets the release.
        vocabulary: The word list; None with a plan whose task has no words.
        plan: A plan of FedTP; None for a keyboard's.
        signer: Signs the release.
        people: Who took part.
    """
    if plan is None:
        assert vocabulary is not None
        plan = plan_of(PERSONAL_SETTINGS, vocabulary, personalisation=FEDTP)
    half = _half(plan, people)
    draw = np.random.default_rng(7).standard_normal(released_schema(plan).element_count)
    state = encode_tensors({name: tensor.numpy() for name, tensor in half.state().items()})
    releases = ReleaseFolder(folder / "releases")
    new = NewRelease(
        round_number=1,
        attempt=0,
        plan=plan,
        vocabulary=vocabulary,
        parameters=(0.5 * draw).astype(np.float32),
        previous_sha256=bytes(32),
        metrics={"perplexity": 9.5},
        guarantee="no privacy guarantee",
        personalisation=bytes(state),
    )
    releases.build(new, signer)
    return read_release(releases.publish(1))


def _half(plan: Plan, people: tuple[str, ...]) -> HypernetworkHalf:
    half = build_server_half(
        plan.personalisation, download_schema(plan), model=plan.model, run_seed=plan.seed
    )
    assert isinstance(half, HypernetworkHalf)
    count = plan_schema(plan).with_roles(Role.GENERATED).element_count
    half.begin(RoundTerms(slot_count=len(people), weighting="examples"))
    for number, name in enumerate(people, start=1):
        generator = torch.Generator().manual_seed(number)
        half.take(name, 5 * torch.randn(count, generator=generator), 10)
    half.close()
    return half
