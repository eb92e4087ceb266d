"""Releases of a tiny voice and of a tiny vocoder that fits it."""

from pathlib import Path

import msgspec
import numpy as np

from export.releases.release import Release, read_release
from models.plan.plan import Plan, TrainingSettings, plan_schema, released_schema
from models.settings.growth import GrowthSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from models.settings.vocoder import VocoderSettings
from models.vector.codec import FlatVector, named_tensors
from privacy.identities.party import Identity
from privacy.noise.settings import NoNoise
from server.releases.files import NewRelease, ReleaseFolder
from tests.export.conftest import RUN, random_parameters
from tests.models.tiny_voice import MEL, TINY

ONE_VOICE = msgspec.structs.replace(TINY, speaker_size=0, layer_count=1, longest_text=20)
VOCODER = VocoderSettings(mel=MEL, width=6, hidden_size=8, block_count=2)
VOCODER_RUN = "fedcba9876543210" * 2


def speech_plan(
    settings: ModelSettings = ONE_VOICE,
    *,
    run: str = RUN,
    task: str = "speech",
    personalisation: PersonalisationSettings | None = None,
    growth: GrowthSettings | None = None,
    stage: int | None = None,
) -> Plan:
    plan = Plan(
        run=run,
        task=task,
        model=settings,
        schema_sha256="00" * 32,
        training=TrainingSettings(learning_rate=1.0, batch_size=1),
        personalisation=personalisation or GlobalSettings(),
        privacy=NoNoise(),
        cohort_size=2,
        seed=1,
        growth=growth,
        growth_stage=stage,
    )
    return msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())


def voice_parameters(
    settings: ModelSettings, seed: int = 0, *, stop: float | None = None
) -> FlatVector:
    """Draw parameters, norms about as trained ones: factors near 1, variances above 0.

    Args:
        settings: A voice's or a vocoder's.
        seed: Of the draws.
        stop: The logit of every step that it is the last; None leaves it to chance.
    """
    drawn = random_parameters(settings, seed)
    for name, tensor in named_tensors(schema_of(settings), drawn).items():
        if name.endswith("norm.weight"):
            tensor[:] = 1 + tensor
        if name.endswith(".running_var"):
            tensor[:] = 0.5 + np.abs(tensor)
        if stop is not None and name.startswith("head.stop."):
            tensor[:] = stop if name.endswith("bias") else 0
    return drawn


def speech_release(
    folder: Path, plan: Plan, *, signer: Identity | None = None, stop: float | None = None
) -> Release:
    """Write the release of round 3 into a folder's ``releases``."""
    schema = released_schema(plan)
    tensors = named_tensors(schema_of(plan.model), voice_parameters(plan.model, stop=stop))
    released = [tensors[name].ravel() for name in schema.slices]
    releases = ReleaseFolder(folder / "releases")
    new = NewRelease(
        round_number=3,
        attempt=0,
        plan=plan,
        vocabulary=None,
        parameters=np.concatenate(released),
        previous_sha256=bytes(32),
        metrics={"mel_l1": 0.75},
        guarantee="no privacy guarantee",
        personalisation=None,
    )
    releases.build(new, signer)
    return read_release(releases.publish(3))


def vocoder_release(folder: Path, settings: VocoderSettings = VOCODER) -> Release:
    return speech_release(folder, speech_plan(settings, run=VOCODER_RUN, task="vocoder"))
