"""Let each client train the finished model further on its own examples: local fine-tuning.

The baseline of every personalisation method, open to a device with any release. Nothing leaves the
client, so it trains every tensor without clipping or noise, with a fresh optimiser each epoch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from torch import Tensor

from edge_client.training.local_round import LocalTrainer
from models.plan.plan import Plan
from models.settings.personalisation import GlobalSettings
from models.tasks.keystrokes import KeystrokeCounts, Sentences
from models.tasks.metrics import Counts
from models.text.vocabulary import Vocabulary
from privacy.clipping.clip import UnusableUpdateError
from privacy.noise.settings import NoNoise
from simulation.population.examples import Examples


class TypedText(NamedTuple):
    """Text that a client typed and its model never saw, in the words of the model's rows."""

    sentences: Sentences
    vocabulary: Vocabulary


class OwnScore(msgspec.Struct, frozen=True, kw_only=True):
    """A client's own model on its own test examples; ``keys`` is None if they were not counted."""

    counts: Counts
    keys: KeystrokeCounts | None = None


class FineTuner:
    """A fine-tuner of one released model for client after client."""

    def __init__(self, plan: Plan) -> None:
        """Build a network for the plan's model, whichever method trained it.

        Raises:
            ValueError: If the plan names an unknown task.
        """
        training = msgspec.structs.replace(
            plan.training,
            local_epochs=1,
            decay=None,
            optimiser_state="fresh",
            example_privacy=None,
            frozen=(),
        )
        self._trainer = LocalTrainer(
            msgspec.structs.replace(
                plan, personalisation=GlobalSettings(), privacy=NoNoise(), training=training
            )
        )

    def scores(
        self,
        parameters: Tensor,
        train: Examples,
        test: Examples,
        *,
        client_name: str,
        after_round: int,
        epochs: Sequence[int],
        typed: TypedText | None = None,
    ) -> list[OwnScore]:
        """Return the scores after each number of ``epochs``, which rise from 1.

        Args:
            parameters: The whole model, flat float32, shape ``(elements,)``; not changed.
            after_round: Round of the model; epochs draw as the rounds after it would.
            typed: The test text in words, to count keys; None counts none.

        Raises:
            UnusableExamplesError: If the examples cannot be trained on.
            ValueError: If training diverges, or the parameters do not fit.
        """
        model = parameters.clone()
        found = []
        for epoch in range(1, epochs[-1] + 1):
            try:
                model += self._trainer.train(
                    model, train, round_number=after_round + epoch, client_name=client_name
                ).update
            except UnusableUpdateError as error:
                raise ValueError(f"fine-tuning diverged: {error}") from None
            if epoch in epochs:
                found.append(self._score(model, test, client_name, typed))
        return found

    def _score(
        self, model: Tensor, test: Examples, client_name: str, typed: TypedText | None
    ) -> OwnScore:
        counts = self._trainer.evaluate(model, test, client_name=client_name)
        keys = (
            None
            if typed is None
            else self._trainer.type_text(
                model, typed.sentences, typed.vocabulary, client_name=client_name
            )
        )
        return OwnScore(counts=counts, keys=keys)
