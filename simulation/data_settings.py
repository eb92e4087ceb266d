"""Settings of a simulated population: whose examples, dealt to how many clients, and how."""

import math
from typing import Literal

import msgspec


class DataSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what stands in for the devices' own text.

    Attributes:
        dataset: Name in the data-set registry, such as ``ptb``.
        partition: ``iid`` deals shuffled sentences to ``client_count`` equal shards,
            ``dirichlet`` to shards of uneven sizes; ``users`` makes every author a client, and
            ``groups`` deals whole authors to ``client_count`` clients.
        client_count: Clients to deal to; with ``users`` the most active ones are kept, and absent
            means all.
        concentration: α of the Dirichlet over sizes; smaller is more uneven. Only for
            ``dirichlet``.
        split: ``held-out`` scores the data set's own validation and test text; ``by-user-time``
            trains on the first four fifths of each author's text and scores each client on the
            rest of its own. Only with ``users``.
        pairs_per_client: Sequences with their targets that each client trains on; for the made-up
            data sets ``copy``, ``reverse`` and ``translate``, and only there.
        least_tokens: A client with fewer training tokens is left out.
        absence_rate: Chance, in [0, 1), that a client of the cohort never commits.
        keystrokes: Whether the final figures say how many keys the test text's authors would save.
        seed: Seed of the deal, apart from the run's, so that runs of different seeds have the
            same clients.
    """

    dataset: str
    partition: Literal["iid", "dirichlet", "users", "groups"] = "iid"
    client_count: int | None = None
    concentration: float | None = None
    split: Literal["held-out", "by-user-time"] = "held-out"
    pairs_per_client: int | None = None
    least_tokens: int = 2
    absence_rate: float = 0.0
    keystrokes: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if self.client_count is None and self.partition != "users":
            raise ValueError(f"partition {self.partition} needs client_count")
        if self.client_count is not None and self.client_count < 1:
            raise ValueError(f"client_count must be >= 1, got {self.client_count}")
        if self.pairs_per_client is not None and self.pairs_per_client < 1:
            raise ValueError(f"pairs_per_client must be >= 1, got {self.pairs_per_client}")
        # A stream of one token has no target after its first, and makes no batch.
        if self.least_tokens < 2:
            raise ValueError(f"least_tokens must be >= 2, got {self.least_tokens}")
        if not 0 <= self.absence_rate < 1:
            raise ValueError(f"absence_rate must be in [0, 1), got {self.absence_rate}")
        if self.split == "by-user-time" and self.partition != "users":
            raise ValueError(
                f'split = "by-user-time" needs partition = "users", got "{self.partition}"'
            )
        self._check_concentration()

    def _check_concentration(self) -> None:
        if (self.concentration is not None) != (self.partition == "dirichlet"):
            raise ValueError('concentration belongs to partition = "dirichlet" and only there')
        if self.concentration is not None and not 0 < self.concentration < math.inf:
            raise ValueError(f"concentration must be > 0 and finite, got {self.concentration}")
