from typing import Literal

import numpy as np
import pytest
import torch

from models.personal.hypernetwork import Hypernetwork
from models.personal.hypernetwork_numpy import generate
from models.settings.hypernetwork import HypernetworkSettings
from models.vector.codec import named_tensors
from models.vector.schema import Schema, TensorSpec

SCHEMA = Schema(
    tuple(
        TensorSpec(name=name, shape=shape, layer=name)
        for name, shape in (("projection", (6, 5)), ("bias", (4,)))
    )
)


@pytest.mark.parametrize("spectral_norm", [False, True])
@pytest.mark.parametrize("output", ["mixture", "literal"])
def test_numpy_makes_what_the_trained_hypernetwork_makes(
    output: Literal["mixture", "literal"], *, spectral_norm: bool
) -> None:
    settings = HypernetworkSettings(
        embedding_size=5, hidden_size=7, basis_size=3, output=output, spectral_norm=spectral_norm
    )
    hypernetwork = Hypernetwork(settings, SCHEMA)
    hypernetwork.initialise(torch.Generator().manual_seed(3), torch.linspace(-1, 1, 34))
    phi = named_tensors(hypernetwork.schema, hypernetwork.used_phi.numpy())
    for seed in (1, 2):
        embedding = torch.randn(5, generator=torch.Generator().manual_seed(seed))

        made = generate(phi, settings, embedding.numpy(), tensor_count=2)

        assert made.dtype == np.float32
        np.testing.assert_allclose(made, hypernetwork.generate(embedding).numpy(), atol=1e-6)
