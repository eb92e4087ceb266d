"""What a close insists on: the roles of tensors, and parameters that are flat and finite."""

import math

import torch
from torch import Tensor

from models.vector.schema import Role, Schema
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.settings import PrivacySettings


def check_roles(schema: Schema, privacy: PrivacySettings) -> None:
    """Check that a noise mode can close tensors of these roles, else ValueError."""
    if schema.with_roles(Role.PERSONAL).tensors:
        raise ValueError("schema must hold no personal tensor: those never leave a device")
    if isinstance(privacy, TreeNoise) and schema.with_roles(Role.GENERATED).tensors:
        raise ValueError(
            "mode ftrl noises sums of the shared tensors only, and the schema has generated "
            'ones; set privacy.mode = "central"'
        )


def check_parameters(parameters: Tensor, released: Schema) -> None:
    """Check that parameters are flat float32 of a released schema, else ValueError."""
    shape = (released.element_count,)
    if parameters.shape != shape or parameters.dtype != torch.float32:
        raise ValueError(
            f"parameters must be float32 of shape {shape}, "
            f"got {parameters.dtype} of shape {tuple(parameters.shape)}"
        )


def check_finite(released: Tensor) -> None:
    """Check that new parameters are finite, else ValueError."""
    if not released.numel():  # A method may share nothing.
        return
    # One read and no copy; NaN passes through the minimum.
    least, largest = torch.aminmax(released)
    if not (math.isfinite(float(least)) and math.isfinite(float(largest))):
        raise ValueError("the new parameters must be finite; lower server_step_size or clip")
