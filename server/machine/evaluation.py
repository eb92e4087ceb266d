"""The machine of one evaluation by devices, which decides whom it asks and when it is over."""

import msgspec

from server.config.evaluation import EvaluationSettings
from server.config.evaluation_rules import draws_by_coins
from server.config.rounds import RoundSettings
from server.machine.cohort import EntropySource
from server.machine.rounds import RoundMachine


def evaluation_machine(
    evaluation: EvaluationSettings, rounds: RoundSettings, source: EntropySource
) -> RoundMachine:
    """Return a machine whose one round is the evaluation, drawn by coins if the rounds are."""
    exchange = evaluation.exchange()
    if not draws_by_coins(evaluation, rounds):
        return RoundMachine(exchange, source)
    population = rounds.population_size or 0
    coins = msgspec.structs.replace(
        exchange,
        selection="sampled",
        cohort_size=None,
        participation_rate=(evaluation.cohort_size or 0) / population,
        population_size=population,
        close_early=False,
    )
    return RoundMachine(coins, source, sampled_places=population)
