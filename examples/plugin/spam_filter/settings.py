"""Settings of the filter's network and the schema that follows from them. No torch."""

import msgspec

from models.settings.bounds import check_at_least
from models.vector.schema import Schema
from models.vector.tensor_lists import linear_tensors


class WordCountSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts of words in buckets, a hidden layer, and two classes.

    Attributes:
        bucket_count: Buckets that words are counted in; several words share one.
        hidden_size: Width of the hidden layer.
    """

    bucket_count: int = 256
    hidden_size: int = 8

    def __post_init__(self) -> None:
        check_at_least(self, 1, "bucket_count", "hidden_size")

    def schema(self) -> Schema:
        """Return the tensors in state-dict order."""
        return Schema(
            (
                *linear_tensors("hidden", self.hidden_size, self.bucket_count),
                *linear_tensors("output", 2, self.hidden_size),
            )
        )
