"""Measure the noise on the total weights, where sums of updates and of weights are noised.

Canaries are scored in the released mean, so they show the noise on the sum of updates. A round that
nobody is in has a total weight of zero, and what comes out as its weights is their noise.
"""

import math

import numpy as np

from privacy.auditing.scores import AuditError
from privacy.clipping.noised_sums import sums_sensitivity, weight_entry
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from simulation.auditing.canaries import Coordinator
from simulation.auditing.coordinator import ClosingCoordinator
from simulation.auditing.masked_sums import UnmaskingCoordinator, faults_of_masked_weights

_ROUNDS = 256
_STANDARD_ERRORS = 5.0


def faults_of_weights(coordinator: Coordinator) -> list[str]:
    """Return what contradicts the claimed noise on the weights; nothing where there are none.

    Raises:
        AuditError: If a round with noise on sums tells no weights.
    """
    if isinstance(coordinator, UnmaskingCoordinator):
        return faults_of_masked_weights(coordinator)
    if not isinstance(coordinator, ClosingCoordinator):
        return []
    privacy, form = coordinator.privacy, coordinator.form
    if form is None or not isinstance(privacy, CentralNoise | TreeNoise):
        return []
    told = [coordinator.close(()).noised_weights for _ in range(_ROUNDS)]
    weights = [value for values in told if values is not None for value in values]
    if len(weights) != _ROUNDS * len(form.layers):
        raise AuditError("a round whose sums are noised must tell their weights, and one does not")
    measured = float(np.sqrt(np.mean(np.square(weights))))
    layers, clips = len(form.layers), [privacy.clipping_norm]
    reach = sums_sensitivity(clips, layer_count=layers, adjacency=privacy.adjacency)
    claimed = privacy.noise_multiplier * reach / weight_entry(clips, layers)
    if measured >= claimed * (1 - _STANDARD_ERRORS / math.sqrt(2 * len(weights))):
        return []
    return [
        f"too little noise on the weights: {measured:.3g} clients, {claimed:.3g} are claimed; "
        "what is divided by them tells who came"
    ]
