"""The noise under masks in words: what the devices' shares of it come to."""

import math

from privacy.clipping.noised_sums import sums_sensitivity
from privacy.commands.answer import Answer
from privacy.commands.federation_file import FederationTables
from privacy.commands.sums_in_words import released_noise
from privacy.noise.masked_settings import MaskedNoise


def noise_of_shares(tables: FederationTables, privacy: MaskedNoise) -> Answer:
    """Return the noise of the honest contributors' shares on a sum, and that of a release.

    The released mean has the noise of every contributor, here of the fewest.
    """
    quorum = tables.rounds.quorum or 0
    least, honest = privacy.least_contributors(quorum), privacy.honest_contributors(quorum)
    # The units of weighting share one room, however many they are.
    sensitivity = sums_sensitivity(
        [privacy.clipping_norm], layer_count=1, adjacency=privacy.adjacency
    )
    drawn = privacy.aggregate_noise_multiplier
    whole, one = drawn * sensitivity, drawn * sensitivity / math.sqrt(honest)
    counted = (
        ""
        if drawn == privacy.noise_multiplier
        else (f"; {privacy.noise_multiplier:g} together with the count behind the clip")
    )
    rule = tables.aggregation
    strength = rule.attention_strength if rule.rule == "attentive" else 0.0
    released = released_noise(one * math.sqrt(least), least, strength)
    return Answer(
        {
            "noise_multiplier": privacy.noise_multiplier,
            "drawn_noise_multiplier": drawn,
            "sensitivity": sensitivity,
            "noise_std": whole,
            "least_contributors": least,
            "honest_contributors": honest,
            "share_noise_std": one,
            **released.figures,
        },
        [
            f"Noise: {drawn:.4g} (multiplier{counted}) x {sensitivity:.4g} (sensitivity) = "
            f"standard deviation {whole:.4g} on every parameter of a sum of {least} updates or "
            f"more, if {honest} of them add a share of {one:.4g} each; the grid adds a little.",
            f"All {least} together make it {one * math.sqrt(least):.4g}. {released.lines[0]}",
        ],
    )
