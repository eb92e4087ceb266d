"""Let clients measure a run's models under a guarantee, as a deployment's devices do.

The server's own parts draw, limit, charge and noise them. A client scores the examples held out for
choosing settings, never the final test. A round's evaluation is paid for before the round is
recorded: a run killed in between measures it again, and pays again.
"""

from privacy.accounting.budget import BudgetExceededError
from privacy.foundation.secure_source import SecureSource
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.limited_counts import LimitedSum
from server.config.evaluation_rules import draws_by_coins
from server.machine.evaluation import evaluation_machine
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Value
from simulation.figures.progress import tell
from simulation.population.population import Population, PopulationError
from simulation.rounds.federation import Federation
from simulation.rounds.guarded_run import GuardedRun
from simulation.runs.measuring import Measures


class AskedDevices:
    """The clients of one run, who are asked."""

    def __init__(
        self,
        config: SimulationConfig,
        population: Population,
        measures: Measures,
        guarded: GuardedRun,
    ) -> None:
        """Prepare to ask.

        Raises:
            PopulationError: If no client holds out anything to score.
        """
        if not population.own("valid"):
            raise PopulationError(
                'evaluation.kind = "devices" needs clients that hold out examples of their own, '
                'and nobody has enough text for it; set evaluation.kind = "none"'
            )
        self._config = config
        self._measures = measures
        self._guarded = guarded

    def figures(self, federation: Federation) -> dict[str, Value]:
        """Return the noised figures of the newest model; empty without enough clients or budget.

        Raises:
            LedgerError: If the privacy ledger was changed.
        """
        counted = self._counted(federation)
        if counted is None:
            return {}
        number = federation.round_number
        try:
            figures = self._guarded.evaluations.release(number, counted)
        except BudgetExceededError as error:
            tell([f"round {number} is not evaluated: {error}"])
            return {}
        return {f"valid_{name}": value for name, value in figures.items()}

    def _counted(self, federation: Federation) -> LimitedSum | None:
        """Return the sum of the asked clients' counts; None if they are too few."""
        evaluation, privacy = self._config.evaluation, self._config.privacy
        if evaluation.noise is None or not isinstance(privacy, CentralNoise | TreeNoise):
            raise ValueError("clients are asked under a guarantee that noises what they count")
        by_coins = draws_by_coins(evaluation, self._config.rounds)
        made_it = set() if by_coins else set(federation.took_part)
        everybody = self._guarded.population(federation.round_number)
        machine = evaluation_machine(evaluation, self._config.rounds, SecureSource())
        machine.open_round([name for name in everybody if name not in made_it], 0.0)
        members = None if machine.cohort is None else machine.cohort.members
        if members is None:
            return None
        counts = self._measures.asked(federation, members)
        if not by_coins and len(counts) < evaluation.quorum:
            return None
        of_words = self._config.vocabulary is not None
        total = LimitedSum(evaluation.noise, privacy.adjacency, of_words=of_words)
        for one in counts:
            total.add(one)
        return total
