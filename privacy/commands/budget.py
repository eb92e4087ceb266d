"""Answer ``sotto-privacy epsilon``, ``noise`` and ``sensitivity``, before a run and after it."""

import math
from pathlib import Path

from privacy.accounting.accountant import PrivacyReport, report_of_tally
from privacy.accounting.calibration import noise_multiplier_for, tree_noise_multiplier_for
from privacy.accounting.checked_values import (
    check_count,
    check_delta,
    check_noise_multiplier,
    check_sampling_rate,
)
from privacy.accounting.events import Adjacency, GaussianRelease, SecretCoinFlips, TreeRelease
from privacy.accounting.ledger_chain import LedgerOfAnotherRunError, head_of, verify_chain
from privacy.accounting.ledger_file import read_ledger
from privacy.accounting.slot_overflow import slot_count_for
from privacy.accounting.tally import Tally, tally
from privacy.clipping.sensitivity import attentive_sensitivity, mean_sensitivity
from privacy.commands.answer import Answer, Figure, in_words
from privacy.commands.federation_file import FederationTables, read_tables, tally_of_run

CHEAP_ATTENTION = 0.5
"""κ up to which attention costs a guarantee little; above it the price is said."""


def epsilon_of_sampled(
    *,
    noise_multiplier: float,
    rounds: int,
    sampling_rate: float,
    delta: float,
    population_size: int | None,
    second_opinion: str,
) -> Answer:
    """Answer what rounds of Gaussian noise cost, cohorts drawn by secret coins at rate q.

    Args:
        noise_multiplier: z.
        rounds: T.
        sampling_rate: q in (0, 1]; 1 where nothing amplifies.
        delta: δ of the whole run.
        population_size: People enrolled. With it the places of a round are those that the draw
            needs, and their tail is part of δ; without it there is a place for everybody.
        second_opinion: Name of the second accountant.

    Raises:
        AccountantsDisagreeError: If two accountants differ.
        ValueError: If a value is missing or out of its range.
    """
    check_count(rounds, "rounds")
    check_delta(delta, population_size=population_size)
    z, q = check_noise_multiplier(noise_multiplier), check_sampling_rate(sampling_rate)
    slots = None
    if q == 1:
        total = Tally(inverse_square=rounds / z**2)
    elif population_size is None:
        total = Tally(sampled={(z, q): rounds})
    else:
        slots = slot_count_for(population_size, q, rounds=rounds, delta=delta)
        coins = SecretCoinFlips(sampling_rate=q, population_size=population_size, slot_count=slots)
        total = Tally().plus(
            GaussianRelease(noise_multiplier=z, adjacency="zero-out", sampling=coins), rounds
        )
    answer = _answer(report_of_tally(total, delta, second_opinion=second_opinion), rounds)
    answer.figures["slot_count"] = slots
    if slots is not None:
        answer.lines.append(f"places of a round: {slots}, for draws at {q:g} of {population_size}")
    if q < 1:
        answer.lines.append(
            "amplified: holds only for cohorts that the coordinator draws by secret coins"
        )
    return answer


def epsilon_of_trees(
    *,
    noise_multiplier: float,
    rounds: int,
    min_separation: int,
    max_participation: int,
    restart_rounds: int | None,
    delta: float,
) -> Answer:
    """Answer what rounds of tree noise cost, whoever takes part when.

    Args:
        noise_multiplier: z of each node.
        rounds: T.
        min_separation: Least distance in rounds of two participations.
        max_participation: Most participations of one person.
        restart_rounds: Rounds of each tree; None is one tree.
        delta: δ of the whole run.

    Raises:
        ValueError: If a value is missing or out of its range.
    """
    total = Tally()
    for number, leaves in enumerate(_tree_leaves(rounds, restart_rounds)):
        leaf = TreeRelease(
            noise_multiplier=noise_multiplier,
            adjacency="zero-out",
            min_separation=min_separation,
            max_participation=max_participation,
            tree_number=number,
        )
        total = total.plus(leaf, leaves)
    return _answer(report_of_tally(total, delta), rounds)


def epsilon_of_plan(path: Path, *, second_opinion: str) -> Answer:
    """Answer what the whole run of a federation's file would cost.

    Raises:
        AccountantsDisagreeError: If two accountants differ.
        FederationTablesError: If the file cannot be read.
        ValueError: If its mode promises nothing that could be computed.
    """
    tables = read_tables(path)
    delta = _promised_delta(path, tables)
    found = report_of_tally(tally_of_run(tables), delta, second_opinion=second_opinion)
    answer = _answer(found, tables.rounds.cap, evaluations=tables.evaluation_count())
    budget = tables.epsilon_budget
    answer.figures["epsilon_budget"] = budget
    if budget is not None:
        fits = "within" if found.epsilon <= budget else "above"
        answer.lines.append(f"{fits} epsilon_budget {budget:g} of the plan")
    return answer


def delta_of_plan(path: Path) -> float:
    """Return the δ that a federation's file promises.

    Raises:
        FederationTablesError: If the file cannot be read.
        ValueError: If its mode promises nothing that could be computed.
    """
    return _promised_delta(path, read_tables(path))


def _promised_delta(path: Path, tables: FederationTables) -> float:
    if tables.delta is None:
        raise ValueError(f"{path}: {tables.privacy.guarantee}; there is no epsilon to compute")
    return tables.delta


def epsilon_of_ledger(
    path: Path, *, delta: float | None, run: str | None, head: str | None, second_opinion: str
) -> Answer:
    """Answer what a ledger says was spent, after checking its chain.

    Args:
        path: A coordinator's SQLite store, or its export as JSON.
        delta: δ of the whole run.
        run: Run that it must belong to, 32 hex digits; None takes the file's word.
        head: Digest that its newest entry must have, 64 hex digits; None checks none.
        second_opinion: Name of the second accountant.

    Raises:
        AccountantsDisagreeError: If two accountants differ.
        LedgerError: If it was changed, or is not the ledger asked about.
        ValueError: If delta is out of its range.
    """
    file = read_ledger(path)
    if run is not None and run.lower() != file.run.lower():
        raise LedgerOfAnotherRunError(f"{path} is the ledger of run {file.run}, not of run {run}")
    events = verify_chain(file.entries, run=file.run, head=head)
    found = report_of_tally(tally(events), check_delta(delta), second_opinion=second_opinion)
    answer = _answer(found, len(events))
    newest = head_of(file.entries, file.run).hex()
    set_back = sum(entry.clock_set_back_ms > 0 for entry in file.entries)
    more: dict[str, Figure] = {"run": file.run, "head": newest, "clock_set_back_count": set_back}
    answer.figures.update(more)
    answer.lines.append(f"run {file.run}, chain unbroken, head {newest}")
    if set_back:
        answer.lines.append(f"the clock was set back {in_words(set_back, 'time')}")
    return answer


def noise_for(*, target_epsilon: float, rounds: int, sampling_rate: float, delta: float) -> Answer:
    """Answer the least noise multiplier that keeps a run within ε at δ.

    Raises:
        ValueError: If a value is missing or out of its range.
    """
    z = noise_multiplier_for(target_epsilon, delta, rounds, sampling_rate)
    return Answer(
        figures={
            "noise_multiplier": z,
            "target_epsilon": target_epsilon,
            "delta": delta,
            "rounds": rounds,
            "sampling_rate": sampling_rate,
        },
        lines=[
            f"noise multiplier {z:g} keeps {in_words(rounds, 'round')} at sampling rate "
            f"{sampling_rate:g} within epsilon {target_epsilon:g} at delta {delta:g}",
            "noise standard deviation = noise multiplier x sensitivity of the aggregate",
        ],
    )


def tree_noise_for(
    *,
    target_epsilon: float,
    rounds: int,
    min_separation: int,
    max_participation: int,
    restart_rounds: int | None,
    delta: float,
) -> Answer:
    """Answer the least noise multiplier of each node that keeps trees of noise within ε at δ.

    Raises:
        ValueError: If a value is missing or out of its range.
    """
    z = tree_noise_multiplier_for(
        target_epsilon,
        delta,
        _tree_leaves(rounds, restart_rounds),
        min_separation=min_separation,
        max_participation=max_participation,
    )
    return Answer(
        figures={
            "noise_multiplier": z,
            "target_epsilon": target_epsilon,
            "delta": delta,
            "rounds": rounds,
            "min_separation": min_separation,
            "max_participation": max_participation,
            "restart_rounds": restart_rounds,
        },
        lines=[
            f"noise multiplier {z:g} keeps {in_words(rounds, 'round')}, one person in at most "
            f"{max_participation} of them and at least {min_separation} apart, within epsilon "
            f"{target_epsilon:g} at delta {delta:g}",
            "noise standard deviation of each node = noise multiplier x sensitivity of the "
            "aggregate",
        ],
    )


def sensitivity_of(
    *,
    slot_count: int,
    attention_strength: float,
    clipping_norm: float,
    layer_count: int,
    adjacency: Adjacency,
    server_step_size: float,
) -> Answer:
    """Answer how far one person moves the step, and what attention adds to the noise for it.

    Raises:
        ValueError: If a value is out of its range, or no bound is proved for it.
    """
    sensitivity = attentive_sensitivity(
        slot_count=slot_count,
        attention_strength=attention_strength,
        clipping_norms=[clipping_norm],
        layer_count=layer_count,
        adjacency=adjacency,
        server_step_size=server_step_size,
    )
    of_mean = mean_sensitivity(
        slot_count=slot_count,
        clipping_norms=[clipping_norm],
        adjacency=adjacency,
        server_step_size=server_step_size,
    )
    price = sensitivity / of_mean
    lines = [
        f"L2 sensitivity {sensitivity:.6g} ({adjacency}, {slot_count} places), in parameter units",
        f"equal weights: {of_mean:.6g}",
    ]
    if abs(attention_strength) > CHEAP_ATTENTION:
        lines.append(price_line(attention_strength, price))
    return Answer(
        figures={
            "sensitivity": sensitivity,
            "mean_sensitivity": of_mean,
            "price_of_attention": price,
            "adjacency": adjacency,
            "slot_count": slot_count,
            "attention_strength": attention_strength,
            "clipping_norm": clipping_norm,
            "layer_count": layer_count,
            "server_step_size": server_step_size,
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


def _tree_leaves(rounds: int, restart_rounds: int | None) -> list[int]:
    """Return the rounds of each tree in the order of time."""
    length = check_count(rounds, "rounds")
    if restart_rounds is not None:
        length = check_count(restart_rounds, "restart_rounds")
    return [min(length, rounds - first) for first in range(0, rounds, length)]


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


def _basis(found: PrivacyReport) -> str:
    if found.epsilon_pld is None:
        return f"rho {found.rho:.4g} of zero-concentrated differential privacy, trees of noise"
    if found.epsilon_prv is None:
        return "PLD alone: above 100 no second opinion is asked for, and nobody is protected"
    return f"PLD {found.epsilon_pld:.4f}, second opinion PRV {found.epsilon_prv:.4f}"
