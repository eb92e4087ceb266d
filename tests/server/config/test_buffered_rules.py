from typing import Any

import pytest

from server.config.federation import ConfigError, FederationConfig, parse_config
from tests.integration.federation import settings

BUFFERED = """
selection = "first-come"

[rounds.buffered]
concurrency = 6
"""
NOISE = "noise_multiplier = 1.0\ndelta = 1e-5\nepsilon_budget = 8.0\n"
EVALUATION = '[evaluation]\nkind = "devices"\ncohort_size = 1\nquorum = 1\ndeadline_s = 5.0\n'
ADAPTIVE = "[privacy.adaptive_clipping]\ncount_noise_std = 1.0\n"


def config(**changes: Any) -> FederationConfig:
    text = settings(more_rounds=BUFFERED, **changes)
    mode, more = changes.get("mode", "none"), changes.get("noise", "")
    text = text.replace('mode = "none"', f'mode = "{mode}"\n{more}')
    return parse_config(text.replace('rule = "attentive"\nattention_strength = 0.5', RULE), "test")


RULE = 'rule = "mean"\nweighting = "equal"'


def test_a_federation_without_a_guarantee_may_be_buffered() -> None:
    buffered = config().rounds.buffered

    assert buffered is not None
    assert (buffered.concurrency, buffered.max_staleness) == (6, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mode": "central", "noise": NOISE + 'adjacency = "zero-out"\n'},
            'privacy.mode = "central" must not be used with rounds.buffered: .*; remove '
            "rounds.buffered$",
        ),
        (
            {
                "mode": "ftrl",
                "noise": NOISE
                + 'adjacency = "zero-out"\nmin_separation = 2\nmax_participation = 3\n',
            },
            'privacy.mode = "ftrl" must not be used with rounds.buffered',
        ),
        (
            {"mode": "local", "noise": NOISE},
            'rounds.selection must be "drawn" with privacy.mode = "local", got "first-come": .*; '
            'set selection = "drawn", and remove rounds.buffered',
        ),
        ({"tables": EVALUATION}, 'evaluation.kind = "devices" asks devices that are still at work'),
        ({"tables": ADAPTIVE}, "privacy.adaptive_clipping must be absent with rounds.buffered"),
        (
            {"tables": '[compression]\nuplink = "int8"\nlayer_groups = 2\n'},
            "compression.layer_groups must be absent with rounds.buffered",
        ),
    ],
)
def test_what_updates_of_different_ages_would_break_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)
