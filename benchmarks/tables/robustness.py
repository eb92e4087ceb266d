"""Say what stands in the tables of rules against attacks: every rule under every attack.

A fifth of the clients attack. ``default`` is screening by norm, a clipping norm that follows the
clients, and attention with κ = 0.5; ``default, trimmed`` drops the furthest fifth of each round as
well, ``default, by direction`` those that oppose the others, and ``default, by history`` those that
oppose where the model has been going, while copies share one weight. ``literal`` is the paper's
softmax over raw distances. Every row of a table has the same clients, rounds and local training.
"""

from benchmarks.tables.definition import Row, TableDefinition

THREE = (1, 2, 3)
SHARE = 0.2
_DEFAULTS = ("default", "default, by direction", "default, by history")
_SMALL = ("mean", "literal", "default", "default, trimmed", *_DEFAULTS[1:])
BETWEEN = " under "
"""Separator of rule and attack in a row's name."""

_SCREEN = "screening={norm_factor=4.0}"


def _clipped(norm: float) -> tuple[str, ...]:
    """Return a clipping norm that starts there and follows the median, and the screen."""
    adaptive = "adaptive_clipping={count_noise_std=0.0}"
    return (f'privacy={{mode="none", clipping_norm={norm}, {adaptive}}}', _SCREEN)


def _rules(norm: float) -> dict[str, tuple[str, ...]]:
    """Return every rule, with what belongs to it.

    Args:
        norm: Clipping norm of the first round where there is one, in parameter units.
    """
    bare, clipped = 'privacy={mode="none"}', _clipped(norm)
    return {
        "mean": ('aggregation={rule="mean"}', bare),
        "literal": ('aggregation={rule="literal"}', bare),
        "default": ('aggregation={rule="attentive", attention_strength=0.5}', *clipped),
        "default, trimmed": (
            f'aggregation={{rule="trimmed-attentive", trim_share={SHARE}}}',
            *clipped,
        ),
        "default, by direction": (
            'aggregation={rule="trimmed-attentive", trim_by="direction", trim_share=0.4}',
            *clipped,
        ),
        "default, by history": (
            'aggregation={rule="trimmed-attentive", trim_by="history", trim_share=0.4, '
            "sybil_cosine=0.95}",
            *clipped,
        ),
        "attentive, κ = -0.5": (
            'aggregation={rule="attentive", attention_strength=-0.5}',
            *clipped,
        ),
        "median": ('aggregation={rule="median"}', bare),
        "trimmed-mean": (f'aggregation={{rule="trimmed-mean", trim_share={SHARE}}}', bare),
        "geometric-median": ('aggregation={rule="geometric-median"}', bare),
    }


def _krum(attackers: int, kept: int) -> dict[str, tuple[str, ...]]:
    bare = 'privacy={mode="none"}'
    return {
        "krum": (f'aggregation={{rule="krum", attackers={attackers}}}', bare),
        "multi-krum": (f'aggregation={{rule="krum", attackers={attackers}, kept={kept}}}', bare),
    }


def _attack(kind: str, more: str = "") -> tuple[str, ...]:
    return (f'attack={{kind="{kind}", fraction={SHARE}{more}}}',)


ATTACKS: dict[str, tuple[str, ...]] = {
    "no attack": (),
    "sign flip": _attack("sign-flip"),
    "sign flip x10": _attack("sign-flip", ", boost=10.0"),
    "label flip x20": _attack("label-flip"),
    "noise": _attack("noise"),
    "NaN": _attack("nan"),
    "model replacement": _attack("model-replacement"),
    "colluding (ALIE)": _attack("little-is-enough", ", deviations=1.5"),
}
_BACKDOOR = {"backdoor": _attack("backdoor", ', phrase="see you", target="school", boost=10.0')}


def _rows(
    rules: dict[str, tuple[str, ...]], attacks: dict[str, tuple[str, ...]], seeds: tuple[int, ...]
) -> tuple[Row, ...]:
    return tuple(
        Row(f"{rule}{BETWEEN}{attack}", (*settings, *bad), seeds)
        for rule, settings in rules.items()
        for attack, bad in attacks.items()
    )


def _table(
    title: str,
    preset: str,
    rows: tuple[Row, ...],
    *,
    minutes: float,
    figures: tuple[str, ...],
    settings: tuple[str, ...],
) -> TableDefinition:
    return TableDefinition(
        title=title,
        preset=preset,
        rows=rows,
        minutes=minutes,
        figures=figures,
        curve=None,
        references=(),
        settings=settings,
        may_be_lost=True,
    )


_DIGITS = (
    'personalisation={method="global"}',
    'data={dataset="digits", partition="dirichlet-labels", concentration=1.0, client_count=20}',
    'model={family="convnet", class_count=10, image_size=8, channel_count=1, pixel_mean=[0.305], '
    "pixel_std=[0.376], padding=2}",
    "rounds={cap=30, cohort_size=20, quorum=15, deadline_s=600.0}",
    "training.local_epochs=2",
    "training.learning_rate=0.1",
)
_TITLE = "20 clients of uneven classes, all in every round, 30 rounds of 2 local epochs"
_OUTCOME = (
    "accuracy",
    "attacks_sent",
    "attacks_screened",
    "attackers_weight",
    "attackers_largest_weight",
)

_LASTING = ("no attack", "sign flip", "model replacement", "colluding (ALIE)")
"""Attacks that screening does not remove entirely."""
_KEYBOARD = _rules(15.0) | _krum(4, 5)


def _keyboard(
    which: str,
    rules: dict[str, tuple[str, ...]],
    attacks: dict[str, tuple[str, ...]],
    seeds: tuple[int, ...],
    *,
    minutes: float,
    rounds: int = 15,
) -> TableDefinition:
    """Return a table of some rules on text messages."""
    return _table(
        f"NUS SMS, every phone user a client, 2,000 words, width 96, {rounds} rounds of 20; a "
        f"fifth of the clients attack{which}",
        "keyboard-sms-scratch",
        _rows(rules, attacks, seeds),
        minutes=minutes,
        figures=(
            "test_perplexity",
            "test_top3_recall",
            "attacks_screened",
            "attackers_weight",
            "attackers_largest_weight",
            "backdoor_top3",
        ),
        settings=(
            f"rounds={{cap={rounds}, cohort_size=20, quorum=11, deadline_s=600.0}}",
            "evaluation.every_rounds=15",
            "data.keystrokes=false",
            # The preset's 10,000 words and width 300 take six times as long, for 180 runs.
            "vocabulary.size=2000",
            "model.vocabulary_size=2000",
            "model.hidden_size=96",
        ),
    )


def _masked(groups: int) -> str:
    """Return masked sums with so little noise that attacks alone decide what the table shows."""
    return (
        f'privacy={{mode="masked", clipping_norm=2.0, noise_multiplier=0.005, groups={groups}, '
        'honest_share=1.0, adjacency="zero-out", delta=1e-3, epsilon_budget=1e9, '
        "coordinator_epsilon_budget=1e9}"
    )


_GROUPS: dict[str, tuple[str, ...]] = {
    "mean": ('aggregation={rule="mean", weighting="equal"}', _masked(1)),
    "attentive": ('aggregation={rule="attentive"}', _masked(1)),
    "median of 10 groups": ('aggregation={rule="median"}', _masked(10)),
    "geometric-median of 10 groups": ('aggregation={rule="geometric-median"}', _masked(10)),
}

TABLES = {
    "attacks-digits": _table(
        f"Digits, {_TITLE}; a fifth of the clients attack",
        "fedtp-digits",
        _rows(_rules(2.0) | _krum(4, 9), ATTACKS, THREE),
        minutes=46,
        figures=_OUTCOME,
        settings=_DIGITS,
    ),
    "attacks-digits-groups": _table(
        "Digits, 20 clients of uneven classes, all in every round, 10 rounds of 2 local epochs, "
        "under masks: nobody sees an update, and rules compare the sums of groups of two; a fifth "
        "of the clients attack",
        "fedtp-digits",
        _rows(_GROUPS, {name: attack for name, attack in ATTACKS.items() if name != "NaN"}, THREE),
        minutes=12,
        figures=("accuracy",),
        settings=(*_DIGITS, "rounds={cap=10, cohort_size=20, quorum=20, deadline_s=600.0}"),
    ),
    "attacks-keyboard": _keyboard(
        "",
        {name: _KEYBOARD[name] for name in _SMALL},
        ATTACKS | _BACKDOOR,
        THREE,
        minutes=54,
    ),
    "attacks-keyboard-long": _keyboard(
        "; three times as long, one seed",
        {name: _KEYBOARD[name] for name in _DEFAULTS},
        {name: ATTACKS[name] for name in _LASTING},
        THREE[:1],
        minutes=14,
        rounds=45,
    ),
    "attacks-keyboard-rules": _keyboard(
        "; the other rules, one seed",
        {name: rule for name, rule in _KEYBOARD.items() if name not in _SMALL},
        # What is not finite is set aside under every rule.
        {name: attack for name, attack in ATTACKS.items() if name != "NaN"},
        THREE[:1],
        minutes=16,
    ),
}

QUICK = {
    "quick": _table(
        "The machinery: four rules under two attacks, three rounds on the digits",
        "fedtp-digits",
        _rows(
            {name: _rules(2.0)[name] for name in _SMALL},
            {name: ATTACKS[name] for name in ("no attack", "NaN")},
            (1,),
        ),
        minutes=1,
        figures=_OUTCOME,
        settings=(*_DIGITS, "rounds.cap=3", "training.local_epochs=1"),
    )
}
