"""A small problem of images: six patterns under noise, and networks of a few hundred numbers."""

import torch
from torch import Tensor

from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan, TrainingSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import PersonalisationSettings
from models.tasks.image_classification import LabelledImages
from privacy.noise.settings import NoNoise

CONVNET = ConvNetSettings(
    class_count=6,
    image_size=4,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.25,),
    kernel_counts=(4, 8),
    kernel_size=3,
    padding=1,
    hidden_sizes=(12, 10),
)
VIT = VitSettings(
    class_count=6,
    image_size=4,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.25,),
    patch_size=2,
    model_size=8,
    head_count=2,
    head_size=4,
    layer_count=1,
    feedforward_size=8,
    dropout=0.1,
)


def plan_of(model: ModelSettings, method: PersonalisationSettings) -> Plan:
    """Return a plan for one client's images."""
    return Plan(
        run="00" * 16,
        task="image_classification",
        model=model,
        schema_sha256=schema_of(model).sha256.hex(),
        training=TrainingSettings(
            learning_rate=0.05,
            momentum=0.9,
            weight_decay=1e-3,
            gradient_clipping_norm=50.0,
            batch_size=7,
            bptt_steps=1,
        ),
        personalisation=method,
        privacy=NoNoise(),
        cohort_size=1,
        seed=3,
    )


def started(plan: Plan) -> Tensor:
    """Return the parameters that a run starts from, flat, shape ``(elements,)``."""
    return initial_parameters(plan.model, plan.seed)


def images(classes: list[int], count: int, *, seed: int, noise: float = 35.0) -> LabelledImages:
    """Return images of these classes in turn: a pattern each, and noise of so many pixel values."""
    patterns = 60 * torch.randn(6, 4, 4, 1, generator=torch.Generator().manual_seed(77))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes)[torch.arange(count) % len(classes)]
    pixels = 128 + patterns[labels] + noise * torch.randn(count, 4, 4, 1, generator=generator)
    return LabelledImages(pixels.clamp(0, 255).byte(), labels)
