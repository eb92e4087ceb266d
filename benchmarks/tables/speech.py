"""Say what stands in each table of voices: which runs, and at which length.

One embedded voice, twenty minutes of it, and a network far smaller than the paper's. Runs of one
table have the same rounds, local steps and step size.

References:
    [FedDT-TTS] Hong et al., arXiv:2107.08795, tables 1 to 3.
"""

from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.listened import FIGURES, FOLLOWED, HEARD, SPEAKING

THREE = (1, 2, 3)
ROUNDS = 60
LAYERS = 4

AS_PUBLISHED = (
    'start_from="none"',
    "training.learning_rate=0.02",
    "model.aligner_size=0",
    "model.guide_strength=100.0",
    "model.mel_prenet_size=128",
    "model.prenet_dropout=0.1",
    "model.own_frame_share=0.5",
)
"""The preset from nothing and with attention that finds its way alone, as on the first day."""
_DEEP = (f"model.layer_count={LAYERS}", "rounds.quorum=1")
_VOICE = (*_DEEP, *AS_PUBLISHED)
_ALIGNED = (*_DEEP, 'start_from="none"', "training.learning_rate=0.02")
"""The preset from nothing, at the step size that its start was learnt with."""
_LENGTH = (
    f"rounds.cap={ROUNDS}",
    f"training.decay={{last_round={ROUNDS}, final_share=0.05}}",
    f"evaluation.every_rounds={ROUNDS // 20}",
)


def _dealt(*ratio: int, clips: int = 400) -> str:
    return (
        f'data={{dataset="espeak-one", partition="ratio", ratio={list(ratio)}, '
        f"clips_per_speaker={clips}}}"
    )


def _pair(
    name: str, *settings: str, rounds: int = ROUNDS, seeds: tuple[int, ...] = THREE
) -> tuple[Row, ...]:
    """Return a run with all layers from the start and one that gets one at a time."""
    return (
        Row(f"T, {name}", settings, seeds),
        Row(f"DT, {name}", (*settings, _grows(rounds)), seeds),
    )


def _grows(rounds: int, *, start: str = "zero") -> str:
    return (
        f"growth={{target_layer_count={LAYERS}, stage_count={LAYERS}, round_count={rounds}, "
        f'start="{start}"}}'
    )


def _noisy(noise_multiplier: float, rule: str, *, rounds: int = ROUNDS, clips: int = 400) -> Row:
    """Return a run under a guarantee: everybody is drawn, and nobody's score is told on the way."""
    return Row(
        f"{rule}, z = {noise_multiplier:g}",
        (
            _dealt(1, 1, 1, clips=clips),
            _RULES[rule],
            f'privacy={{mode="central", clipping_norm={CLIPPING_NORM}, delta=1e-5, '
            f'noise_multiplier={noise_multiplier}, epsilon_budget=1e12, adjacency="zero-out"}}',
            f'rounds={{cap={rounds}, selection="sampled", participation_rate=0.99, '
            "population_size=3, quorum=1, deadline_s=600.0, close_early=false}",
        ),
    )


def _table(
    title: str,
    rows: tuple[Row, ...],
    minutes: float | None,
    figures: tuple[str, ...],
    curve: str | None,
    *,
    voice: tuple[str, ...] = _VOICE,
    kept_every: int = 0,
) -> TableDefinition:
    return TableDefinition(
        title=title,
        preset="speech-espeak-one",
        rows=rows,
        minutes=minutes,
        figures=figures,
        curve=curve,
        references=(),
        settings=(*voice, *_LENGTH),
        kept_every=kept_every,
    )


def _clipped(rule: str) -> Row:
    clip = f'privacy={{mode="none", clipping_norm={CLIPPING_NORM}}}'
    return Row(f"{rule}, no noise", (_dealt(1, 1, 1), _RULES[rule], clip))


_EQUAL = 'aggregation={rule="mean", weighting="equal"}'
_RULES = {
    "mean": _EQUAL,
    "attention": 'aggregation={rule="attentive", attention_strength=0.5}',
}
CLIPPING_NORM = 5.0

_TOGETHER = (
    *_pair("1:1:1", _dealt(1, 1, 1), _EQUAL),
    *_pair("1:2:4", _dealt(1, 2, 4), _EQUAL),
)
_ALONE = _pair("standalone", _dealt(1))

TABLES = {
    "feddt": _table(
        "Growth against none, three clients, equal weights",
        (
            *_TOGETHER,
            Row(
                "DT, 1:1:1, the paper's start",
                (_dealt(1, 1, 1), _EQUAL, _grows(ROUNDS, start="random")),
            ),
        ),
        105,
        FIGURES,
        FOLLOWED,
    ),
    "standalone-dt": _table(
        "Growth against none, one learner with all recordings",
        _ALONE,
        45,
        FIGURES,
        FOLLOWED,
    ),
    "growth-speaks": _table(
        "Growth against none, of voices with an aligner",
        (*_TOGETHER, *_ALONE),
        None,
        SPEAKING,
        FOLLOWED,
        voice=_ALIGNED,
        kept_every=10,
    ),
    "speech-noise": _table(
        "Noise on what three clients send: noise multiplier z, attention, clipping at 5",
        (
            Row("mean, not clipped", (_dealt(1, 1, 1), _EQUAL), run=("feddt", "T, 1:1:1")),
            *(_clipped(rule) for rule in _RULES),
            *(_noisy(z, "attention") for z in (0.0003, 0.001, 0.003)),
            _noisy(0.001, "mean"),
        ),
        60,
        ("test_mel_l1", *HEARD),
        None,
    ),
}

QUICK = {
    "quick-aligned": TableDefinition(
        title="The machinery: a small voice with an aligner for four rounds",
        preset="speech-espeak-one",
        rows=_pair("1:2", _dealt(1, 2, clips=24), _EQUAL, rounds=4, seeds=(1,)),
        minutes=1,
        figures=SPEAKING,
        curve=FOLLOWED,
        references=(),
        settings=(*_ALIGNED, "rounds.cap=4", "evaluation.every_rounds=1"),
        kept_every=2,
    ),
    "quick": TableDefinition(
        title="The machinery: a small voice for four rounds",
        preset="speech-espeak-one",
        rows=(
            *_pair("1:2", _dealt(1, 2, clips=24), _EQUAL, rounds=4, seeds=(1,)),
            _noisy(0.001, "attention", rounds=4, clips=24),
        ),
        minutes=1,
        figures=FIGURES,
        curve=FOLLOWED,
        references=(),
        settings=(
            *_VOICE,
            "rounds.cap=4",
            "evaluation.every_rounds=1",
        ),
    ),
}
