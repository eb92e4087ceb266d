"""Answers to ``sotto-privacy epsilon``, ``noise`` and ``sensitivity``, before a run and after it.

All raise ValueError if a value is missing or out of its range, and those that compute ε with two
accountants AccountantsDisagreeError if they differ.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from privacy.accounting.accountant import (
    PrivacyReport,
    Reports,
    report_of_tally,
    reports,
    reports_of_tallies,
)
from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.calibration import masked_noise_multiplier_for, noise_multiplier_for
from privacy.accounting.checked_values import (
    check_count,
    check_delta,
    check_epsilon,
    check_noise_multiplier,
    check_sampling_rate,
)
from privacy.accounting.events import GaussianRelease, PrivacyEvent, SecretCoinFlips
from privacy.accounting.ledger_chain import (
    LedgerOfAnotherRunError,
    check_end,
    head_of,
    verify_chain,
)
from privacy.accounting.ledger_file import read_ledger
from privacy.accounting.onlookers import AGAINST, NOT_AGAINST_COORDINATOR, is_hidden
from privacy.accounting.slot_overflow import slot_count_for
from privacy.accounting.tally import Tally, gaussian_tally, masked_tally
from privacy.clipping.sensitivity import attentive_sensitivity, mean_sensitivity
from privacy.commands.answer import Answer, Figure, in_words
from privacy.commands.budget_flags import Epsilon, Noise, Sensitivity
from privacy.commands.correlated_noise import least_noise, tally_of_flags
from privacy.commands.federation_file import FederationTables, read_tables, tally_of_run

CHEAP_ATTENTION = 0.5
"""κ up to which attention costs a guarantee little; above it the price is said."""


def epsilon_of(asked: Epsilon) -> Answer:
    """Answer what a plan, a setting or a ledger costs, whichever is asked about."""
    if asked.ledger is not None:
        return epsilon_of_ledger(asked.ledger, asked)
    if asked.plan is not None:
        return epsilon_of_plan(asked.plan, second_opinion=asked.second_opinion)
    if asked.source == "ftrl":
        return epsilon_of_correlated(asked)
    return epsilon_of_masked(asked) if asked.source == "masked" else epsilon_of_sampled(asked)


def epsilon_of_sampled(asked: Epsilon) -> Answer:
    """Answer what rounds of Gaussian noise cost, cohorts drawn by secret coins at rate q.

    With the population given, the places of a round are those that the draw needs, and their tail
    is part of δ; without it there is a place for everybody. At rate 1 nothing amplifies.
    """
    rounds = check_count(asked.rounds, "rounds")
    delta = check_delta(asked.delta, population_size=asked.population)
    z, q = check_noise_multiplier(asked.noise_multiplier), check_sampling_rate(asked.sampling_rate)
    slots = None
    if q == 1 or asked.population is None:
        total = gaussian_tally(z, q, rounds)
    else:
        slots = slot_count_for(asked.population, q, rounds=rounds, delta=delta)
        coins = SecretCoinFlips(sampling_rate=q, population_size=asked.population, slot_count=slots)
        total = Tally().plus(
            GaussianRelease(noise_multiplier=z, adjacency="zero-out", sampling=coins), rounds
        )
    found = report_of_tally(total, delta, second_opinion=asked.second_opinion)
    answer = _answer(found, rounds)
    answer.figures["slot_count"] = slots
    if slots is not None:
        answer.lines.append(f"places of a round: {slots}, for draws at {q:g} of {asked.population}")
    if q < 1:
        answer.lines.append(
            "amplified: holds only for cohorts that the coordinator draws by secret coins"
        )
    return answer


def epsilon_of_correlated(asked: Epsilon) -> Answer:
    """Answer what rounds of correlated noise cost, whoever takes part when."""
    total, rounds = tally_of_flags(asked), check_count(asked.rounds, "rounds")
    return _answer(report_of_tally(total, check_delta(asked.delta)), rounds)


def epsilon_of_masked(asked: Epsilon) -> Answer:
    """Answer what rounds under masks cost readers, and as many attempts the coordinator."""
    rounds = check_count(asked.rounds, "rounds")
    total = masked_tally(check_noise_multiplier(asked.noise_multiplier), rounds)
    delta = check_delta(asked.delta)
    found = report_of_tally(total, delta, second_opinion=asked.second_opinion)
    same = msgspec.structs.replace(found, onlooker="coordinator")
    return _told_to_both(_answer(found, rounds), Reports(found, same))


def epsilon_of_plan(path: Path, *, second_opinion: str) -> Answer:
    """Answer what a federation's whole run would cost; ValueError if it promises nothing."""
    tables = read_tables(path)
    delta = _promised(path, tables).delta
    found = reports_of_tallies(
        tally_of_run(tables),
        tally_of_run(tables, onlooker="coordinator"),
        delta,
        second_opinion=second_opinion,
    )
    answer = _answer(found.readers, tables.rounds.cap, evaluations=tables.evaluation_count())
    _told_to_both(answer, found)
    for budget, spent in zip(tables.budgets, found, strict=False):
        most, name = budget.epsilon_budget, budget.name
        answer.figures[name] = most
        fits = "within" if spent.epsilon <= most else "above"
        answer.lines.append(f"{fits} {name} {most:g} of the plan")
    return answer


def _promised(path: Path, tables: FederationTables) -> PrivacyBudget:
    if tables.budget is None:
        raise ValueError(f"{path}: {tables.privacy.guarantee}; there is no epsilon to compute")
    return tables.budget


def epsilon_of_ledger(path: Path, asked: Epsilon) -> Answer:
    """Answer what a ledger says was spent, once its chain is checked; a plan may name δ."""
    delta = asked.delta
    if asked.plan is not None and delta is None:
        delta = _promised(asked.plan, read_tables(asked.plan)).delta
    file = read_ledger(path)
    if asked.run is not None and asked.run.lower() != file.run.lower():
        raise LedgerOfAnotherRunError(
            f"{path} is the ledger of run {file.run}, not of run {asked.run}"
        )
    events = verify_chain(file.entries, run=file.run, head=asked.head)
    check_end(file.entries, file.noted)
    found = reports(events, check_delta(delta), second_opinion=asked.second_opinion)
    answer = _told_to_both(_answer(found.readers, _released(events)), found)
    newest = head_of(file.entries, file.run).hex()
    set_back = sum(entry.clock_set_back_ms > 0 for entry in file.entries)
    answer.figures.update(run=file.run, head=newest, clock_set_back_count=set_back)
    answer.lines.append(f"run {file.run}, chain unbroken, head {newest}")
    if set_back:
        answer.lines.append(f"the clock was set back {in_words(set_back, 'time')}")
    return answer


def noise_for(asked: Noise) -> Answer:
    """Answer the least noise multiplier, of each draw, that keeps a run within ε."""
    epsilon = check_epsilon(asked.target_epsilon, "target_epsilon")
    delta, rounds = check_delta(asked.delta), check_count(asked.rounds, "rounds")
    noised = "the sums" if asked.mode == "masked" else "the aggregate"
    if asked.mode == "ftrl":
        # It counts how often one person takes part; sampling counts all alike.
        z, draw = least_noise(asked, epsilon, delta)
        words = (
            f", one person in at most {asked.max_participation} of them and at least "
            f"{asked.min_separation} apart,"
        )
        each = " of each round's draw" if asked.mechanism == "blt" else " of each node"
    elif asked.mode == "masked":
        z, draw = masked_noise_multiplier_for(epsilon, delta, rounds), Answer({}, [])
        words, each = f" (attempts, {AGAINST['coordinator']})", " of all honest shares"
    else:
        q = check_sampling_rate(asked.sampling_rate)
        z, draw = noise_multiplier_for(epsilon, delta, rounds, q), Answer({"sampling_rate": q}, [])
        words, each = f" at sampling rate {q:g}", ""
    return Answer(
        figures={
            "noise_multiplier": z,
            "target_epsilon": epsilon,
            "delta": delta,
            "rounds": rounds,
            **draw.figures,
        },
        lines=[
            f"noise multiplier {z:g} keeps {in_words(rounds, 'round')}{words} within epsilon "
            f"{epsilon:g} at delta {delta:g}",
            f"noise standard deviation{each} = noise multiplier x sensitivity of {noised}",
            *draw.lines,
        ],
    )


def sensitivity_of(asked: Sensitivity) -> Answer:
    """Answer how far one person moves the step, and what attention adds to the noise for it."""
    strength, adjacency = asked.attention_strength, asked.adjacency
    of_mean = mean_sensitivity(
        slot_count=asked.cohort,
        clipping_norms=[asked.clipping_norm],
        adjacency=adjacency,
        server_step_size=asked.server_step_size,
    )
    sensitivity = attentive_sensitivity(
        slot_count=asked.cohort,
        attention_strength=strength,
        clipping_norms=[asked.clipping_norm],
        layer_count=asked.layers,
        adjacency=adjacency,
        server_step_size=asked.server_step_size,
    )
    price = sensitivity / of_mean
    lines = [
        f"L2 sensitivity {sensitivity:.6g} ({adjacency}, {asked.cohort} places), in parameter "
        "units",
        f"equal weights: {of_mean:.6g}",
    ]
    if abs(strength) > CHEAP_ATTENTION:
        lines.append(price_line(strength, price))
    return Answer(
        figures={
            "sensitivity": sensitivity,
            "mean_sensitivity": of_mean,
            "price_of_attention": price,
            "adjacency": adjacency,
            "slot_count": asked.cohort,
            "attention_strength": strength,
            "clipping_norm": asked.clipping_norm,
            "layer_count": asked.layers,
            "server_step_size": asked.server_step_size,
        },
        lines=lines,
    )


def price_line(attention_strength: float, price: float) -> str:
    """Return in words what attention adds to the noise; in a large cohort that is e^|κ|."""
    limit = math.exp(abs(attention_strength))
    return (
        f"attention strength {attention_strength:g} costs {price:.3g} times the noise of equal "
        f"weights, {limit:.3g} in a large cohort; at most {CHEAP_ATTENTION:g} is cheap"
    )


def _answer(found: PrivacyReport, rounds: int, *, evaluations: int = 0) -> Answer:
    bounded = math.isfinite(found.epsilon)
    figures: dict[str, Figure] = {
        "epsilon": found.epsilon if bounded else None,
        "delta": found.delta,
        "epsilon_pld": found.epsilon_pld,
        "epsilon_prv": found.epsilon_prv,
        "rho": found.rho,
        "overflow": found.overflow,
        "adjacency": found.adjacency,
        "rounds": rounds,
    }
    if not bounded:
        return Answer(figures, ["no bound: something was released without a guarantee"])
    spent = f"epsilon {found.epsilon:.4g} at delta {found.delta:g} for one enrolled person"
    over = in_words(rounds + evaluations, "release")
    counted = f", {in_words(evaluations, 'evaluation')} among them" if evaluations else ""
    return Answer(figures, [f"{spent} over {over}{counted}", _basis(found)])


def _told_to_both(answer: Answer, found: Reports) -> Answer:
    """Add the coordinator's figure to an answer of the readers'; null where nothing is promised."""
    epsilon = found.coordinator.epsilon
    bounded = math.isfinite(epsilon)
    answer.figures["coordinator_epsilon"] = epsilon if bounded else None
    if bounded:
        answer.lines.append(f"that is {AGAINST['readers']}; {AGAINST['coordinator']} {epsilon:.4g}")
    elif math.isfinite(found.readers.epsilon):
        answer.lines.append(f"that is {AGAINST['readers']}; {NOT_AGAINST_COORDINATOR}")
    return answer


def _released(events: Sequence[PrivacyEvent]) -> int:
    return sum(not is_hidden(event, "readers") for event in events)


def _basis(found: PrivacyReport) -> str:
    if found.epsilon_pld is None:
        return f"rho {found.rho:.4g} of zero-concentrated differential privacy, correlated noise"
    if found.epsilon_prv is None:
        return "PLD alone: above 100 no second opinion is asked for, and nobody is protected"
    return f"PLD {found.epsilon_pld:.4f}, second opinion PRV {found.epsilon_prv:.4f}"
