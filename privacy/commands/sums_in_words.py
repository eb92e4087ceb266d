"""What noise on sums comes to, in words and figures, beside noise on the mean.

The noise of the released mean is that of the sums over the weight that came, which nobody knows
beforehand. It lies between the number of clients, where every update is at its clip, and e^-|κ| of
that, where none has moved.
"""

import math

from privacy.clipping.attention_bounds import LARGEST_STRENGTH
from privacy.clipping.noised_sums import sums_sensitivity, weight_entry
from privacy.clipping.sensitivity import UnprovedSensitivityError, attentive_sensitivity
from privacy.commands.answer import Answer
from privacy.commands.budget_flags import Sensitivity


def sensitivity_of_sums(asked: Sensitivity) -> Answer:
    """Answer how far one person moves the sums, and what noise that puts on their ratio.

    Raises:
        ValueError: If an argument is out of range.
    """
    strength, cohort, clips = asked.attention_strength, asked.cohort, [asked.clipping_norm]
    if not abs(strength) <= LARGEST_STRENGTH:
        raise ValueError(
            f"attention_strength must lie in [-{LARGEST_STRENGTH:g}, {LARGEST_STRENGTH:g}], "
            f"got {strength}"
        )
    if cohort < 1:
        raise ValueError(f"slot_count must be >= 1, got {cohort}")
    sensitivity = sums_sensitivity(clips, layer_count=asked.layers, adjacency=asked.adjacency)
    least = asked.server_step_size * sensitivity / cohort
    most = least * math.exp(abs(strength))
    of_mean = _of_mean(asked)
    weights = sensitivity / weight_entry(clips, asked.layers)
    return Answer(
        figures={
            "sensitivity": sensitivity,
            "least_released_noise": least,
            "most_released_noise": most,
            "mean_sensitivity": of_mean,
            "weight_noise": weights,
            "adjacency": asked.adjacency,
            "slot_count": cohort,
            "attention_strength": strength,
            "clipping_norm": asked.clipping_norm,
            "layer_count": asked.layers,
            "server_step_size": asked.server_step_size,
        },
        lines=[
            f"L2 sensitivity {sensitivity:.6g} ({asked.adjacency}) of the sums of updates and of "
            "weights, in parameter units, however many places",
            f"noise of multiplier 1 on the step of {cohort} clients: {least:.6g} where their "
            f"updates are at the clip, {most:.6g} where none has moved",
            "noise of multiplier 1 on the mean over so many places instead: "
            + ("no bound is proved" if of_mean is None else f"{of_mean:.6g}"),
            f"a layer's total weight is known to {weights:.3g} clients at multiplier 1; "
            "below ten times that a cohort is too small for sums",
        ],
    )


def released_noise(noise_std: float, clients: int, attention_strength: float) -> Answer:
    """Return what noise on the sums puts on the released mean of so many clients."""
    least = noise_std / clients
    most = least * math.exp(abs(attention_strength))
    span = f"{least:.4g}" if most == least else f"{least:.4g} to {most:.4g}"
    return Answer(
        {"least_released_noise_std": least, "most_released_noise_std": most},
        [
            f"Divided by the weight of {clients:,} clients that is a standard deviation of {span} "
            "on every parameter of the released mean."
        ],
    )


def price_line_of_sums(attention_strength: float) -> str:
    """Return in words what attention adds to the noise where sums are noised."""
    most = math.exp(abs(attention_strength))
    return (
        f"attention strength {attention_strength:g} costs at most {most:.3g} times the noise of "
        "equal weights, and nothing where updates are at the clip"
    )


def _of_mean(asked: Sensitivity) -> float | None:
    try:
        return attentive_sensitivity(
            slot_count=asked.cohort,
            attention_strength=asked.attention_strength,
            clipping_norms=[asked.clipping_norm],
            layer_count=asked.layers,
            adjacency=asked.adjacency,
            server_step_size=asked.server_step_size,
        )
    except UnprovedSensitivityError:
        return None
