"""The measure of a released model on a public text of the coordinator's."""

from pathlib import Path

import torch
from torch import Tensor

from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan
from models.settings.model import schema_of
from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from models.text.private_text import training_sentences
from models.text.vocabulary import EOS, Vocabulary
from privacy.foundation.bounded_files import read_bounded

_BATCH_SIZE = 64
_LARGEST_TEXT_BYTES = 256 << 20


class EvaluationTextError(ValueError):
    """Raised when a public text cannot be used; names the file."""


class PublicText:
    """A text as tokens, int64 of shape ``(tokens,)``, on which models are scored."""

    def __init__(self, path: Path, vocabulary: Vocabulary) -> None:
        """Read a text in UTF-8, one sentence or more a line, as devices read theirs.

        Raises:
            EvaluationTextError: If the file cannot be read or holds no word of the list.
        """
        try:
            text = read_bounded(path, _LARGEST_TEXT_BYTES).decode()
        except OSError as error:
            raise EvaluationTextError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise EvaluationTextError(f"{path} is not UTF-8 text") from None
        lines = filter(str.strip, text.splitlines())  # a blank line costs as much as a short one
        sentences = [sentence for line in lines for sentence in training_sentences(line)]
        stream = torch.tensor(vocabulary.token_stream(sentences), dtype=torch.int64)
        if not (stream > EOS).any():
            raise EvaluationTextError(f"{path} holds no word of the vocabulary")
        self.stream = stream

    def score(self, plan: Plan, parameters: Tensor) -> Counts:
        """Score every token of the text once, with flat float32 parameters."""
        network = build_network(plan.model)
        load_parameters(network, schema_of(plan.model), parameters)
        return task_named(plan.task).evaluate(network, [self.stream], batch_size=_BATCH_SIZE)
