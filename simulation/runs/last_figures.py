"""Measure a run's model when all rounds are over: on the test split, by client, under attack."""

import statistics

import torch

from models.networks.flat_parameters import load_parameters
from models.networks.registry import WordNetwork, build_network, word_network
from models.settings.model import schema_of
from models.tasks.keystrokes import keystroke_savings
from simulation.config.simulation import SimulationConfig
from simulation.figures.client_figures import keystroke_figures
from simulation.figures.metrics import Value, read_metrics
from simulation.population.population import Population, as_text
from simulation.rounds.attacks import Attackers, backdoor_figures, backdoor_words
from simulation.rounds.federation import Federation
from simulation.runs.checkpoint import RunFolder
from simulation.runs.measuring import Measures


class LastFigures:
    """A run's last figures; those by client go into its folder."""

    def __init__(
        self,
        config: SimulationConfig,
        population: Population,
        *,
        folder: RunFolder,
        measures: Measures,
        attackers: Attackers | None,
    ) -> None:
        self._config = config
        self._population = population
        self._folder = folder
        self._measures = measures
        self._attackers = attackers
        # Under a guarantee no figures of single clients are written.
        self._tells_of_clients = not config.privacy.guarantees_privacy

    def measure(self, federation: Federation, best_round: int | None) -> dict[str, Value]:
        """Measure the best model, or the last where none is kept, on the test split.

        The federation is left with the measured model; ``best_round`` is None if none was
        evaluated.
        """
        kept = best_round if self._config.evaluation.keep_best else None
        final: dict[str, Value] = {
            "round": federation.round_number,
            "model_round": kept or federation.round_number,
            **(_totals(federation) if self._tells_of_clients else {}),
            "clients": len(self._population.clients),
        }
        model_round = kept or federation.round_number
        if model_round != federation.round_number:
            stored = self._folder.read(model_round)
            federation.go_back(torch.tensor(stored.parameters), stored.personalisation, stored.plan)
        own = {
            split: self._measures.clients(federation, split, round_number=model_round)
            for split in ("valid", "test")
        }
        for split, counts in own.items():
            final |= self._measures.figures(federation, split, counts)
        final |= self._measures.of_clients(own["test"])
        if own["test"] and self._tells_of_clients:
            self._folder.save_clients(own["test"])
        if self._config.data.keystrokes:
            if own["test"]:
                final |= self._own_keystrokes(federation, model_round)
            else:
                final |= self._keystrokes(federation)
        return final | self._fine_tuned(federation, model_round) | self._attacked(federation)

    def _own_keystrokes(self, federation: Federation, model_round: int) -> dict[str, Value]:
        """Return what clients' own models save them on their own text."""
        keys = self._measures.keystrokes(federation, round_number=model_round)
        if self._tells_of_clients:
            self._folder.save_keystrokes(keys)
        return keystroke_figures(keys)

    def _fine_tuned(self, federation: Federation, model_round: int) -> dict[str, Value]:
        """Return the figures of clients that each train the current model on by itself."""
        data = self._config.data
        if not data.fine_tuning_epochs:
            return {}
        scores = self._measures.fine_tuned(
            federation,
            data.fine_tuning_epochs,
            round_number=model_round,
            with_keys=data.keystrokes,
        )
        if self._tells_of_clients:
            self._folder.save_fine_tuned(scores)
        return {
            f"fine_tuned_{epochs}_{name}": value
            for epochs, own in scores.items()
            for name, value in self._measures.of_scores(own).items()
        }

    def _attacked(self, federation: Federation) -> dict[str, Value]:
        """Return the attackers, the fate of their updates, and whether a backdoor is in."""
        attack, attackers = self._config.attack, self._attackers
        if attack is None or attackers is None:
            return {}
        rows = read_metrics(self._folder.folder)
        figures: dict[str, Value] = {"attack": attack.kind, "attackers": len(attackers.names)}
        if self._tells_of_clients:
            figures["attacks_sent"] = sum(int(row.get("attackers") or 0) for row in rows)
            figures["attacks_screened"] = sum(
                int(row.get("attackers_screened") or 0) for row in rows
            )
            weights = [
                weight for row in rows if isinstance(weight := row.get("attackers_weight"), float)
            ]
            # In the mean over rounds; some rules weigh nobody.
            figures["attackers_weight"] = statistics.fmean(weights) if weights else None
        if attack.kind == "backdoor":
            words = backdoor_words(attack, self._population.vocabulary)
            figures |= backdoor_figures(_word_network(federation), words)
        return figures

    def _keystrokes(self, federation: Federation) -> dict[str, Value]:
        """Return the keys that the current model saves the authors of the test text."""
        population = as_text(self._population)
        counts = keystroke_savings(
            _word_network(federation), population.vocabulary, population.typed
        )
        return {"keystroke_savings": counts.savings, "keystroke_ceiling": counts.ceiling}


def _word_network(federation: Federation) -> WordNetwork:
    model = federation.plan.model
    network = word_network(build_network(model))
    load_parameters(network, schema_of(model), federation.parameters)
    return network


def _totals(federation: Federation) -> dict[str, Value]:
    """Return what a run cost its clients: tokens trained, bytes received and sent."""
    return {
        "tokens": federation.tokens_trained,
        "bytes_down": federation.bytes_down,
        "bytes_up": federation.bytes_up,
    }
