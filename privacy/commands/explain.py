"""The promise of a federation's file in plain words: unit, neighbours, draw, noise, epsilon.

The modes of [FedAtt] promise nothing; for them the magnitude β is turned into the noise multiplier
that it comes to, so that a reader sees how far it is from one that would.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108 (β in Eq. 6).
"""

import math

from privacy.accounting.accountant import epsilon_of_tally
from privacy.accounting.onlookers import AGAINST, NOT_AGAINST_COORDINATOR, Onlooker
from privacy.accounting.tally import Tally, gaussian_tally
from privacy.accounting.toeplitz import buffered_prefix_variances
from privacy.accounting.tree import tree_prefix_variances
from privacy.commands.answer import Answer, Figure, in_words
from privacy.commands.budget import CHEAP_ATTENTION, price_line
from privacy.commands.federation_file import (
    FederationTables,
    TrainingTable,
    aggregate_sensitivity,
    tally_of_models,
    tally_of_run,
)
from privacy.commands.shares import noise_of_shares
from privacy.commands.sums_in_words import price_line_of_sums, released_noise
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.calibrated_settings import NEIGHBOURS, CentralNoise, LocalNoise, TreeNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, noises_sums

_DELTA_OF_PAPER = 1e-5
"""δ at which the paper's noise is looked at: the paper states none."""

_Calibrated = LocalNoise | CentralNoise | TreeNoise | MaskedNoise
_Neighbouring = CentralNoise | TreeNoise | MaskedNoise


def explain(tables: FederationTables) -> Answer:
    """Return what a plan means, in words and figures, by one accountant only."""
    lines = [f"Mode: {tables.privacy.guarantee}."]
    figures: dict[str, Figure] = {
        "guarantee": tables.privacy.guarantee,
        "guarantees_privacy": tables.privacy.guarantees_privacy,
        "rounds": tables.rounds.cap,
    }
    match tables.privacy:
        case CentralNoise() | TreeNoise() | LocalNoise() | MaskedNoise() as calibrated:
            parts = [
                _unit(calibrated),
                _draw(tables, calibrated),
                _spent(tables, calibrated),
                _against_coordinator(tables, calibrated),
                _noise(tables, calibrated),
                _evaluations(tables, calibrated.delta),
            ]
        case PaperNoise(randomisation_magnitude=magnitude, noise_std=std):
            # Averaging with equal weights takes away the most that it can of every client's draw.
            drawn = magnitude * std / math.sqrt(tables.slot_count or 1)
            parts = [_papers_noise(tables, magnitude, drawn)]
        case PaperServerNoise(randomisation_magnitude=magnitude):
            # The server's one draw is not scaled by its step size.
            drawn = magnitude / tables.aggregation.server_step_size
            parts = [_papers_noise(tables, magnitude, drawn)]
        case NoNoise():
            parts = [Answer({}, ["Nothing is hidden: one person's data can be read off a model."])]
    if tables.training.example_privacy is not None:
        parts.append(_sentences(tables.training, tables.training.example_privacy))
    for part in parts:
        figures |= part.figures
        lines += part.lines
    return Answer(figures, lines)


def _unit(privacy: _Calibrated) -> Answer:
    relation = privacy.adjacency if isinstance(privacy, _Neighbouring) else "local"
    words = NEIGHBOURS.get(relation, "neighbours are any two data sets of one person")
    return Answer(
        {"unit": "enrolled person", "adjacency": relation},
        [
            "Unit of privacy: the enrolled person, all rounds together; enrolling again makes no "
            "new one.",
            f"{words[0].upper()}{words[1:]}.",
        ],
    )


def _draw(tables: FederationTables, privacy: _Calibrated) -> Answer:
    rounds, slots = tables.rounds, tables.slot_count
    figures: dict[str, Figure] = {"slot_count": slots, "sampling_rate": None}
    if rounds.selection == "sampled" and isinstance(privacy, CentralNoise):
        figures["sampling_rate"] = rounds.participation_rate
        words = (
            f"a secret coin of {rounds.participation_rate:g} for each of at most "
            f"{rounds.population_size} people in every round, {slots} places; this amplifies"
        )
        if privacy.adjacency == "replace-one":
            words = "secret coins, which are not accounted for with replace-one"
    elif isinstance(privacy, TreeNoise):
        words = (
            f"nothing is assumed but that one person takes part at most "
            f"{in_words(privacy.max_participation, 'time')}, at least "
            f"{in_words(privacy.min_separation, 'round')} apart"
        )
    else:
        words = "no secret coins, so nothing is amplified: one person may be in every round"
    return Answer(figures, [f"Draw: {words}."])


def _spent(tables: FederationTables, privacy: _Calibrated) -> Answer:
    delta, budget, cap = privacy.delta, privacy.epsilon_budget, tables.rounds.cap
    one = epsilon_of_tally(tally_of_models(tables, 1), delta)
    whole = epsilon_of_tally(tally_of_run(tables), delta)
    fitting = _rounds_that_fit(tables, budget, delta)
    lines = [
        f"One round: epsilon {one:.3g} at delta {delta:g} {AGAINST['readers']}.",
        f"Whole run: epsilon {whole:.3g} at delta {delta:g} over {in_words(cap, 'round')}; "
        f"the budget is {budget:g}.",
    ]
    if fitting < cap:
        lines.append(
            f"The run stops after {in_words(fitting, 'round')}, before the budget is passed; "
            "raise noise_multiplier, or lower rounds.cap or the sampling rate."
        )
    return Answer(
        {
            "delta": delta,
            "epsilon_round": one,
            "epsilon": whole,
            "epsilon_budget": budget,
            "rounds_that_fit": fitting,
        },
        lines,
    )


def _against_coordinator(tables: FederationTables, privacy: _Calibrated) -> Answer:
    """Return what the run shows the coordinator, which sees what devices send."""
    if isinstance(privacy, CentralNoise | TreeNoise):
        words = f"{NOT_AGAINST_COORDINATOR[0].upper()}{NOT_AGAINST_COORDINATOR[1:]}."
        return Answer({"coordinator_epsilon": None}, [words])
    whole = epsilon_of_tally(tally_of_run(tables, onlooker="coordinator"), privacy.delta)
    figures: dict[str, Figure] = {"coordinator_epsilon": whole}
    line = (
        f"The same run costs epsilon {whole:.3g} {AGAINST['coordinator']}, and an attempt that "
        "comes to nothing as much as a round."
    )
    if isinstance(privacy, LocalNoise):
        return Answer(figures, [line])
    budget, cap = privacy.coordinator_epsilon_budget, tables.rounds.cap
    fitting = _rounds_that_fit(tables, budget, privacy.delta, "coordinator")
    lines = [f"{line} Its budget is {budget:g}."]
    if fitting < cap:
        lines.append(
            f"The run stops after {in_words(fitting, 'attempt')}, before that budget is passed; "
            "raise noise_multiplier or coordinator_epsilon_budget, or lower rounds.cap."
        )
    return Answer(
        {**figures, "coordinator_epsilon_budget": budget, "attempts_that_fit": fitting}, lines
    )


def _rounds_that_fit(
    tables: FederationTables, budget: float, delta: float, onlooker: Onlooker = "readers"
) -> int:
    """Return how many rounds of the plan keep the budget; epsilon never falls with rounds."""
    low, high = 0, tables.rounds.cap + 1
    while high - low > 1:
        # The whole run first: mostly it fits, and nothing more is asked.
        middle = high - 1 if low == 0 and high > tables.rounds.cap else (low + high) // 2
        spent = epsilon_of_tally(tally_of_run(tables, middle, onlooker), delta)
        low, high = (middle, high) if spent <= budget else (low, middle)
    return low


def _noise(tables: FederationTables, privacy: _Calibrated) -> Answer:
    if isinstance(privacy, MaskedNoise):
        return noise_of_shares(tables, privacy)
    if isinstance(privacy, LocalNoise):
        sensitivity, where = 2 * privacy.clipping_norm, "each device's update"
    else:
        sensitivity = aggregate_sensitivity(tables, privacy.adjacency)
        of_whole = "the sums" if noises_sums(privacy) else "the aggregate"
        where = of_whole if isinstance(privacy, CentralNoise) else _correlated(privacy)
    drawn, reasons = _drawn_multiplier(privacy, tables.personalisation.vector_count)
    whole = f"; {privacy.noise_multiplier:g} together with {reasons}" if reasons else ""
    priced = _price(tables, privacy, sensitivity)
    released = _released(tables, drawn * sensitivity)
    in_models = _noise_of_models(tables, privacy, drawn * sensitivity)
    return Answer(
        {
            "noise_multiplier": privacy.noise_multiplier,
            "drawn_noise_multiplier": drawn,
            "sensitivity": sensitivity,
            "noise_std": drawn * sensitivity,
            **released.figures,
            **in_models.figures,
            **priced.figures,
        },
        [
            f"Noise: {drawn:.4g} (multiplier{whole}) x {sensitivity:.4g} (sensitivity) = standard "
            f"deviation {drawn * sensitivity:.4g} on every parameter of {where}, before the "
            "server's step.",
            *released.lines,
            *in_models.lines,
            *priced.lines,
        ],
    )


def _released(tables: FederationTables, noise_std: float) -> Answer:
    """Return what noise on the sums puts on the released mean; nothing where that is noised."""
    clients, rule = tables.expected_clients, tables.aggregation
    if clients is None or not noises_sums(tables.privacy):
        return Answer({}, [])
    strength = rule.attention_strength if rule.rule == "attentive" else 0.0
    return released_noise(noise_std, clients, strength)


def _correlated(privacy: TreeNoise) -> str:
    return "each node of the tree" if privacy.buffers is None else "each round's draw"


def _noise_of_models(tables: FederationTables, privacy: _Calibrated, std: float) -> Answer:
    """Return how much of noise that is correlated over rounds a model holds; or nothing."""
    if not isinstance(privacy, TreeNoise):
        return Answer({}, [])
    cap = tables.rounds.cap
    if privacy.buffers is None:
        length = privacy.restart_rounds or cap
        leaves = [min(length, cap - first) for first in range(0, cap, length)]
        largest = std * math.sqrt(max(tree_prefix_variances(leaves)))
        words = "the noisiest model holds"
    else:
        largest = std * math.sqrt(buffered_prefix_variances(*privacy.buffers, cap)[-1])
        count = len(privacy.buffers[0])
        words = f"{count} buffers take {8 * count} bytes a parameter; the last model holds"
    return Answer(
        {"model_noise_std": largest},
        [f"Correlated over rounds: {words} noise of standard deviation {largest:.4g}."],
    )


def _drawn_multiplier(privacy: _Calibrated, vectors: int) -> tuple[float, str]:
    """Return the multiplier that one vector is drawn with, and what else of a round shares z."""
    if not isinstance(privacy, CentralNoise):
        return privacy.noise_multiplier, ""
    beside = ["the count behind the clip"] if privacy.adaptive_clipping is not None else []
    beside += ["what teaches the hypernetwork"] if vectors > 1 else []
    return privacy.aggregate_noise_multiplier * math.sqrt(vectors), " and ".join(beside)


def _evaluations(tables: FederationTables, delta: float) -> Answer:
    """Return what evaluations by devices cost, and how much of a figure is noise; or nothing."""
    event, noise = tables.evaluation_event, tables.evaluation.noise
    size = tables.evaluation.cohort_size
    if event is None or noise is None or size is None:
        return Answer({}, [])
    count = tables.evaluation_count()
    one = epsilon_of_tally(Tally().plus(event), delta)
    models = epsilon_of_tally(tally_of_models(tables, tables.rounds.cap), delta)
    error = noise.loss_error(event.adjacency, size)
    return Answer(
        {
            "evaluations": count,
            "epsilon_evaluation": one,
            "epsilon_models": models,
            "evaluation_loss_error": error,
        },
        [
            f"Evaluations: {count:,} by devices in the whole run, which would cost epsilon "
            f"{models:.3g} without them; one alone costs {one:.3g}.",
            f"Their noise moves the mean log-loss by about {error:.2g} nats, and the perplexity by "
            f"{math.expm1(error):.2g} of itself, if {size:,} devices answer with "
            f"{noise.token_cap:,} targets or more.",
        ],
    )


def _sentences(training: TrainingTable, examples: ExamplePrivacySettings) -> Answer:
    """Return the second layer, and what a round costs a sentence of a person who takes part."""
    steps = examples.step_count(training.local_epochs)
    spent = gaussian_tally(examples.noise_multiplier, examples.sampling_rate, steps)
    epsilon = epsilon_of_tally(spent, examples.delta)
    promise = examples.guarantee(training.local_epochs)
    return Answer(
        {"example_epsilon_round": epsilon, "example_delta": examples.delta},
        [
            f"{promise[0].upper()}{promise[1:]}.",
            f"A round in which a person takes part costs each of their sentences epsilon "
            f"{epsilon:.3g} at delta {examples.delta:g}.",
        ],
    )


def _price(tables: FederationTables, privacy: _Calibrated, sensitivity: float) -> Answer:
    """Return what attention adds to the noise; nothing under equal weights or local noise."""
    if tables.aggregation.rule != "attentive" or isinstance(privacy, LocalNoise | MaskedNoise):
        return Answer({}, [])
    strength = tables.aggregation.attention_strength
    if noises_sums(privacy):
        dear = abs(strength) > CHEAP_ATTENTION
        return Answer({}, [f"Price: {price_line_of_sums(strength)}."] if dear else [])
    price = sensitivity / aggregate_sensitivity(tables, privacy.adjacency, rule="mean")
    dear = abs(strength) > CHEAP_ATTENTION
    return Answer(
        {"price_of_attention": price}, [f"Price: {price_line(strength, price)}."] if dear else []
    )


def _papers_noise(tables: FederationTables, magnitude: float, std: float) -> Answer:
    """Return the noise multiplier that β comes to, for zero-out neighbours.

    ``std`` is the noise on the aggregate before the server's step, in parameter units.
    """
    try:
        sensitivity = aggregate_sensitivity(tables, "zero-out")
    except ValueError as error:
        words = f"As a noise multiplier the magnitude is nothing: {error}."
        return Answer({"noise_multiplier": None}, [words])
    z = std / sensitivity
    figures: dict[str, Figure] = {"randomisation_magnitude": magnitude, "noise_multiplier": z}
    if z == 0:
        return Answer(figures, ["A magnitude of 0 adds no noise."])
    one = epsilon_of_tally(Tally(inverse_square=z**-2), _DELTA_OF_PAPER)
    return Answer(
        {**figures, "epsilon_round": one, "delta": _DELTA_OF_PAPER},
        [
            f"The randomisation magnitude {magnitude:g} is a noise multiplier of {z:.2g}: one "
            f"round alone would cost epsilon {one:,.3g} at delta {_DELTA_OF_PAPER:g}.",
            "A noise multiplier near 1 would need a magnitude of about "
            f"{magnitude / z:.2g}. The ledger counts this mode as no guarantee.",
        ],
    )
