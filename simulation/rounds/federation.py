"""Run the rounds of a federation in this process, with the coordinator's own parts.

``server.machine.rounds`` decides who takes part, in which slot, and when a round closes;
``server.closing.close`` aggregates, and ``edge_client.training.local_round`` trains. This file
stands in for a deployment's sockets and disk, ``simulation.rounds.attendance`` for its clock.

A client trains when the aggregation asks for its update, so memory does not grow with the cohort.
A client whose training diverges leaves its place empty, as a refused upload does.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from torch import Tensor

from models.masked.layout import layout_if_masked
from models.networks.grown_layers import grow
from models.plan.plan import Plan, download_schema, released_schema
from models.plan.stages import next_stage, plan_of_round, stage_figures
from models.settings.compression import release_step
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.plan_events import sampled_places
from server.aggregation.noised_sums import figures_of_weights
from server.aggregation.screening import Screen
from server.closing.close import Closed, Closing, close_round, noise_generator
from server.closing.summing import Contribution
from server.machine.answers import Close, Phase
from server.machine.cohort import PopulationTooLargeError
from server.machine.rounds import RoundMachine
from server.releases.earlier_releases import earlier_parameters
from server.releases.files import ReleaseFolder
from server.releases.method_state import method_state_of
from server.releases.starting_model import starting_method, starting_parameters
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Value
from simulation.rounds.attacks import Attackers
from simulation.rounds.attendance import SimulationError, next_order
from simulation.rounds.cohort_training import CohortTraining
from simulation.rounds.downlink_bytes import DownlinkBytes
from simulation.rounds.masked_round import GroupTooSmallError, close_without_masks
from simulation.rounds.participation import SeededSource
from simulation.rounds.round_tally import Tally, attack_figures
from simulation.workers.pool import WorkerPool

if TYPE_CHECKING:
    # It loads the store's libraries, which a run without a guarantee does without.
    from simulation.rounds.guarded_run import GuardedRun


@dataclass(frozen=True, kw_only=True)
class Start:
    """The point at which a finished round left a run.

    Attributes:
        parameters: The released parameters, flat float32, shape ``(elements,)``.
        personalisation: The method's server half, as its file; None without one.
        round_number: That round; 0 before the first.
        clipping_norm: That of the next round; None takes the settings'.
        typical_norm: The norm that the next round's screen starts from; None if unknown.
        weights_so_far: As in ``Closed``.
    """

    parameters: Tensor
    personalisation: bytes | None = None
    round_number: int = 0
    tokens_trained: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    clipping_norm: float | None = None
    typical_norm: float | None = None
    weights_so_far: tuple[float, ...] | None = None


class Federation:
    """A run between rounds.

    Attributes:
        plan: The plan of the last round, or of the next if there was none.
        parameters: Shared parameters, flat float32, shape ``(elements,)``.
        round_number: Last finished round; 0 before the first.
        tokens_trained: Target tokens that clients trained on so far, repeats included.
        bytes_down: Bytes of parameters that clients received so far, unsealed.
        took_part: Clients with an update in the last round's model.
        clipping_norm: That of the next round, in parameter units; None without clipping.
        typical_norm: As in ``Start``.
    """

    def __init__(
        self,
        config: SimulationConfig,
        plan: Plan,
        names: Sequence[str],
        pool: WorkerPool,
        *,
        start: Start | None = None,
        guard: "GuardedRun | None" = None,
        attackers: Attackers | None = None,
        releases: ReleaseFolder | None = None,
    ) -> None:
        """Start, or go on after a finished round.

        Args:
            names: Every client that may be drawn.
            guard: Keeps the promise of a noise mode with a guarantee; None without one.
            releases: Every round's release, for a rule that looks back.

        Raises:
            ValueError: If a rule looks back, and there are no releases.
        """
        if config.aggregation.look_back and releases is None:
            raise ValueError("a rule that looks back needs releases, got none")
        self.plan = plan_of_round(plan, max(1, 0 if start is None else start.round_number))
        if start is None:
            start = Start(parameters=starting_parameters(config, plan))
            self.method = starting_method(config, self.plan)
        else:
            self.method = method_state_of(config, self.plan.growth_stage)
            self.method.restore(start.personalisation)
        self.parameters = start.parameters
        self.round_number = start.round_number
        self.tokens_trained = start.tokens_trained
        self.bytes_down, self.bytes_up = start.bytes_down, start.bytes_up
        self.took_part: list[str] = []
        self.clipping_norm = start.clipping_norm or config.privacy.clipping_norm
        self.typical_norm = start.typical_norm
        self._weights_so_far = start.weights_so_far
        self._config = config
        self._names = names
        self._pool = pool
        self._attackers = attackers
        self._releases = releases
        self._source = SeededSource(config.seed)
        self._guard = guard
        self._machine = RoundMachine(
            config.rounds,
            self._source,
            round_number=start.round_number + 1,
            sampled_places=sampled_places(config.rounds, config.privacy),
            limits_who_comes=isinstance(config.privacy, TreeNoise),
        )
        self._training = CohortTraining(
            pool,
            attackers=attackers,
            server_step_size=config.aggregation.server_step_size,
        )
        self._set_stage(self.plan)

    def _set_stage(self, plan: Plan) -> None:
        self.plan = plan
        self._downlink = DownlinkBytes(plan)
        self._masked = layout_if_masked(plan)
        self._pool.use(plan)

    def go_back(self, parameters: Tensor, personalisation: bytes | None, plan: Plan) -> None:
        """Take up an earlier release again, as ``Start`` has it, to measure it after all rounds."""
        self.parameters = parameters
        self.method = method_state_of(self._config, plan.growth_stage)
        self.method.restore(personalisation)
        self._set_stage(plan)

    def _grow(self, round_number: int) -> None:
        """Give the model the layers that this round starts with, if there are any."""
        plan = next_stage(self.plan, round_number)
        while plan is not None:
            self.parameters = grow(self.parameters, self.plan, plan, released_schema)
            self.method.grow(plan)
            self.typical_norm = None  # Of a model with fewer layers.
            self._set_stage(plan)
            plan = next_stage(plan, round_number)

    @property
    def is_finished(self) -> bool:
        """Return whether the round cap or the convergence criterion was reached."""
        return self._machine.phase is Phase.FINISHED

    def finish(self) -> None:
        """End the run before its cap."""
        self._machine.finish()

    def run_round(self) -> dict[str, Value]:
        """Run the next round to its end and return its figures.

        Raises:
            BudgetExceededError: If another attempt would pass the privacy budget.
            LedgerError: If the privacy ledger was changed.
            SimulationError: If the population is too small, or no attempt had its quorum.
            WorkerError: If a worker process died.
        """
        started = time.perf_counter()
        number = self._machine.round_number
        self._source.start_round(number)
        self._grow(number)
        tally = Tally()
        closed = None
        while closed is None:
            closed = self._attempt(tally)
        self.parameters = closed.parameters
        self.round_number = number
        self.tokens_trained += tally.tokens
        self._machine.released()
        moved = self._move_clipping_norm(closed) | figures_of_weights(closed.weights_so_far)
        self._weights_so_far = closed.weights_so_far
        figures: dict[str, Value] = {"round": number}
        # Nothing of one client, and no mean or count over them that no noise covers.
        if not self._config.privacy.guarantees_privacy:
            figures |= tally.figures(closed)
            figures["tokens"] = self.tokens_trained
            figures["bytes_down"], figures["bytes_up"] = self.bytes_down, self.bytes_up
        figures["round_s"] = time.perf_counter() - started
        return figures | stage_figures(self.plan) | moved

    def _move_clipping_norm(self, closed: Closed) -> dict[str, Value]:
        """Go on to the next round's norm and return the figures; none where it stays."""
        if closed.next_clipping_norm is None:
            return {}
        before, self.clipping_norm = self.clipping_norm, closed.next_clipping_norm
        return {"clipping_norm": before, "next_clipping_norm": closed.next_clipping_norm}

    def _attempt(self, tally: Tally) -> Closed | None:
        """Open a round and close it; None if it fell short of its quorum and is to be repeated."""
        # Draw the cohort, if the budget admits another attempt.
        names = self._names
        if self._guard is not None:
            self._guard.admit(self._machine.round_number, self._machine.attempt)
            names = self._guard.population(self._machine.round_number)
        try:
            order = next_order(
                self._machine,
                self._source,
                names,
                everybody=self._names,
                absence_rate=self._config.data.absence_rate,
            )
        except PopulationTooLargeError as error:
            raise SimulationError(str(error)) from None
        if order is None:
            number, why = self._machine.round_number, self._config.rounds.shortage(len(names))
            raise SimulationError(f"round {number} cannot open: {why}")
        if self._guard is not None:
            self._guard.enter(order.round_number, order.attempt)
        # Close the round; too few usable updates abort the attempt.
        if isinstance(order, Close):
            try:
                return self._close(order, tally)
            except (_TooFewError, GroupTooSmallError):
                # Raised before anything was learnt from those who were not enough.
                pass
            aside = f", {tally.screened} were set aside" if tally.screened else ""
            order = self._machine.abort(f"{tally.diverged} clients diverged{aside}")
        elif not order.gives_up:
            self._training.let_keep(
                order,
                self.parameters,
                clipping_norm=self.clipping_norm,
                generate=self.generated_for,
            )
        if order.gives_up:
            raise SimulationError(
                f"round {order.round_number} was given up after {order.attempt + 1} attempts: "
                f"{order.reason}; lower training.learning_rate or rounds.quorum"
            )
        return None

    def generated_for(self, client_name: str) -> Tensor | None:
        """Return a client's generated tensors, or None where the method generates none."""
        is_made = bool(self.method.generated.tensors)
        return self.method.parameters_for(client_name) if is_made else None

    def _close(self, order: Close, tally: Tally) -> Closed:
        """Train the cohort and aggregate as updates come; ``_TooFewError`` below the quorum."""
        tally.cohort = order.slot_count
        self._downlink.start_round(order.round_number, self.parameters)
        self.took_part = []
        screen = Screen(
            self._config.screening,
            typical_norm=self.typical_norm,
            clipping_norm=self.clipping_norm,
        )
        try:
            closed = self._sum(order, tally, screen)
        finally:
            # A round that comes to nothing has seen norms too: the next attempt must know better.
            self.typical_norm = screen.next_typical_norm
        places = order.places()
        refused = {name for name, place in places.items() if place in screen.refused_slots}
        if self._attackers is not None:
            sent = {places[name] for name in self._attackers.names & set(self.took_part)}
            tally.attacked = attack_figures(closed, sent, screen.refused_slots)
        self.took_part = [name for name in self.took_part if name not in refused]
        return closed

    def _sum(self, order: Close, tally: Tally, screen: Screen) -> Closed:
        earlier, look_back = None, self._config.aggregation.look_back
        if self._releases is not None:  # A rule looks at where the model has been going.
            released = released_schema(self.plan)
            earlier = earlier_parameters(self._releases, released, self.round_number, look_back)
        closing = Closing(
            schema=download_schema(self.plan),
            aggregation=self._config.aggregation,
            privacy=msgspec.structs.replace(self.plan.privacy, clipping_norm=self.clipping_norm),
            slot_count=order.slot_count,
            generator=noise_generator(self.plan.seed, order.round_number),
            seeded=True,
            example_cap=self._config.training.example_cap,
            personalisation=self.method.half,
            round_number=order.round_number,
            noise_keys=None if self._guard is None else self._guard.noise_keys,
            screen=screen,
            release_step=release_step(self.plan.compression),
            earlier=earlier,
            weights_so_far=self._weights_so_far,
        )
        sent = self._train(order, tally, screen)
        if self._masked is None:
            return close_round(self.parameters, sent, closing)
        quorum = self._config.rounds.quorum
        return close_without_masks(self.parameters, sent, self._masked, closing, quorum=quorum)

    def _train(self, order: Close, tally: Tally, screen: Screen) -> Iterator[Contribution]:
        sent = self._training.results(
            order,
            self.plan,
            self.parameters,
            clipping_norm=self.clipping_norm,
            generate=self.generated_for,
            layout=self._masked,
        )
        for client in sent:
            self.bytes_down += self._downlink.take(client.client_name)
            if client.update is None:
                tally.diverged += 1
                continue
            tokens = client.example_count * self._config.training.local_epochs
            tally.add(client, tokens)
            self.bytes_up += client.upload_bytes
            self.took_part.append(client.client_name)
            yield Contribution(client.slot, client.update, client.example_count, client.client_name)
        # All that were yielded have been looked at by now.
        left = len(self.took_part) - len(screen.refused_slots)
        rounds = self._config.rounds
        if rounds.selection != "sampled" and left < rounds.quorum:
            tally.screened += len(screen.refused_slots)
            raise _TooFewError


class _TooFewError(Exception):
    """Raised when an attempt at a round has fewer usable updates than its quorum."""
