"""Settings of a simulated population: whose examples, dealt to how many clients, and how."""

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from models.plugins.loaded import has_part
from models.plugins.parts import Part

Partition = Literal[
    "iid",
    "dirichlet",
    "users",
    "groups",
    "pathological",
    "dirichlet-labels",
    "pachinko",
    "coarse-labels",
    "ratio",
]

PARTITIONS_OF_TASK: Mapping[str, frozenset[Partition]] = {
    "next_word": frozenset({"iid", "dirichlet", "users", "groups"}),
    "next_character": frozenset({"users"}),
    "image_classification": frozenset(
        {"iid", "pathological", "dirichlet-labels", "pachinko", "coarse-labels"}
    ),
    "sequence": frozenset({"iid"}),
    "speech": frozenset({"users", "iid", "ratio"}),
    "vocoder": frozenset({"users", "iid", "ratio"}),
}
"""How the examples of each task can be dealt; a task that is not here has no data sets."""

_OF_PLUGIN: frozenset[Partition] = frozenset({"users"})
_TASKS_OF_CLIPS = ("speech", "vocoder")
_WITH_CONCENTRATION = ("dirichlet", "dirichlet-labels", "pachinko")


class DataSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text or images that stand in for the devices' own.

    Attributes:
        dataset: Name in the data-set registry, such as ``ptb``, ``cifar10`` or ``shakespeare``.
        partition: ``iid`` deals shuffled sentences or images to ``client_count`` equal shards. For
            text, ``dirichlet`` makes shards of uneven sizes, ``users`` every author a client, and
            ``groups`` deals whole authors to ``client_count`` clients. For images, ``pathological``
            gives each client a few classes, ``dirichlet-labels`` uneven shares of all,
            ``coarse-labels`` those of one coarse class, and ``pachinko`` coarse and fine classes by
            weights of its own. For recordings, ``users`` makes every speaker a client, ``iid`` and
            ``ratio`` deal clips of any speaker.
        client_count: Clients to deal to, not with ``ratio``; with ``users`` the most active ones
            are kept, all if absent.
        ratio: Sizes of the clients, such as ``[1, 1, 3]``, for ``ratio``.
        clips_per_speaker: Clips of each speaker that are used, scored ones included; absent is all.
        held_out_clips: Clips to score and never train on, of those used; absent is a tenth.
        concentration: α of the Dirichlet: over sizes for ``dirichlet``, over clients for
            ``dirichlet-labels``, over coarse classes for ``pachinko``; smaller is more uneven.
        fine_concentration: α over a coarse class's fine ones, for ``pachinko``; absent is 10.
        classes_per_client: Classes that each client holds, for ``pathological``.
        least_images: Fewest images of a client, to train on and to test on, for
            ``dirichlet-labels``; absent is 10.
        image_share: Share, in (0, 1], of each class's images that are dealt at all, drawn once. For
            runs that a few cores can finish.
        pixel_noise: σ, in levels of 0 to 255, of the noise that the last client's camera adds; the
            others' rises towards it in equal steps from 0. For images dealt ``iid``.
        split: ``held-out`` scores the data set's own validation and test text; ``by-user-time``
            trains on the first four fifths of each author's text and scores each client on the rest
            of its own, half of it on the way where ``evaluation.kind`` is ``devices``. Only for
            words, with ``users``; characters are always split so, and images as the data set says.
        pairs_per_client: Sequences with their targets that each client trains on; only for the
            made-up data sets ``copy``, ``reverse`` and ``translate``.
        novel_share: Share of the clients, in [0, 1), that is kept out of training, to fit finished
            models to them with ``sotto-simulate novel``.
        least_tokens: A client with fewer training tokens (words or characters) is left out.
        absence_rate: Chance, in [0, 1), that a client of the cohort never commits.
        keystrokes: Whether the final figures say how many keys the test text's authors would save;
            with ``by-user-time``, each with its own model.
        fine_tuning_epochs: Numbers of local epochs, rising, after which to score the final model as
            each client trains it on by itself. For methods whose release is a whole model.
        seed: Seed of the deal; runs of different seeds have the same clients.
    """

    dataset: str
    partition: Partition = "iid"
    client_count: int | None = None
    ratio: tuple[int, ...] | None = None
    clips_per_speaker: int | None = None
    held_out_clips: int | None = None
    concentration: float | None = None
    fine_concentration: float | None = None
    classes_per_client: int | None = None
    least_images: int | None = None
    image_share: float = 1.0
    pixel_noise: float = 0.0
    split: Literal["held-out", "by-user-time"] = "held-out"
    pairs_per_client: int | None = None
    novel_share: float = 0.0
    least_tokens: int = 2
    absence_rate: float = 0.0
    keystrokes: bool = False
    fine_tuning_epochs: tuple[int, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        if self.client_count is None and self.partition not in ("users", "ratio"):
            raise ValueError(f"partition {self.partition} needs client_count")
        if self.client_count is not None and self.client_count < 1:
            raise ValueError(f"client_count must be >= 1, got {self.client_count}")
        self._check_clips()
        if self.pairs_per_client is not None and self.pairs_per_client < 1:
            raise ValueError(f"pairs_per_client must be >= 1, got {self.pairs_per_client}")
        # A stream of one token has no target after its first, and makes no batch.
        if self.least_tokens < 2:
            raise ValueError(f"least_tokens must be >= 2, got {self.least_tokens}")
        for name in ("absence_rate", "novel_share"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if self.split == "by-user-time" and self.partition != "users":
            raise ValueError(
                f'split = "by-user-time" needs partition = "users", got "{self.partition}"'
            )
        epochs = self.fine_tuning_epochs
        if list(epochs) != sorted({*epochs}) or min(epochs, default=1) < 1:
            raise ValueError(f"fine_tuning_epochs must rise, from 1, got {list(epochs)}")
        self._check_concentrations()
        self._check_classes()
        self._check_noise()

    def check_task(self, task: str) -> None:
        """Check that the task's examples can be dealt so.

        Raises:
            ValueError: If they cannot, or no data set is known for the task.
        """
        of_plugin = _OF_PLUGIN if has_part(Part.TASKS, task) else None
        partitions = PARTITIONS_OF_TASK.get(task, of_plugin)
        if partitions is None:
            raise ValueError(
                f"task must be one of {', '.join(PARTITIONS_OF_TASK)} in a simulation, got {task!r}"
            )
        if self.partition not in partitions:
            raise ValueError(
                f"data.partition must be one of {', '.join(sorted(partitions))} for "
                f'task "{task}", got "{self.partition}"'
            )
        for name in ("clips_per_speaker", "held_out_clips"):
            if getattr(self, name) is not None and task not in _TASKS_OF_CLIPS:
                raise ValueError(
                    f"data.{name} needs task = {' or '.join(map(repr, _TASKS_OF_CLIPS))}, "
                    f'got "{task}"'
                )
        if self.split != "held-out" and task != "next_word":
            raise ValueError(f'data.split needs task = "next_word", got "{task}"')
        for name, value in (
            ("pixel_noise", self.pixel_noise > 0),
            ("image_share", self.image_share < 1),
        ):
            if value and task != "image_classification":
                raise ValueError(f'data.{name} needs images, got task = "{task}"')

    def _check_concentrations(self) -> None:
        has = self.concentration is not None
        if has != (self.partition in _WITH_CONCENTRATION):
            raise ValueError(
                f"concentration belongs to partition {', '.join(_WITH_CONCENTRATION)} and only "
                f'there, got "{self.partition}" {"with" if has else "without"} it'
            )
        if self.fine_concentration is not None and self.partition != "pachinko":
            raise ValueError('fine_concentration belongs to partition = "pachinko" and only there')
        for name in ("concentration", "fine_concentration"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value}")

    def _check_clips(self) -> None:
        if (self.ratio is not None) != (self.partition == "ratio"):
            raise ValueError('ratio belongs to partition = "ratio" and only there')
        if self.ratio is not None and (not self.ratio or min(self.ratio) < 1):
            raise ValueError(f"ratio must be whole numbers >= 1, got {list(self.ratio)}")
        if self.ratio is not None and self.client_count is not None:
            raise ValueError(
                "client_count must be absent with ratio, which says how many there are"
            )
        # One to train on, and one to be scored on.
        if self.clips_per_speaker is not None and self.clips_per_speaker < 2:
            raise ValueError(f"clips_per_speaker must be >= 2, got {self.clips_per_speaker}")
        if self.held_out_clips is not None and self.held_out_clips < 1:
            raise ValueError(f"held_out_clips must be >= 1, got {self.held_out_clips}")

    def _check_classes(self) -> None:
        if (self.classes_per_client is not None) != (self.partition == "pathological"):
            raise ValueError(
                'classes_per_client belongs to partition = "pathological" and only there'
            )
        if self.classes_per_client is not None and self.classes_per_client < 1:
            raise ValueError(f"classes_per_client must be >= 1, got {self.classes_per_client}")
        if self.least_images is not None and self.partition != "dirichlet-labels":
            raise ValueError(
                'least_images belongs to partition = "dirichlet-labels" and only there'
            )
        if self.least_images is not None and self.least_images < 1:
            raise ValueError(f"least_images must be >= 1, got {self.least_images}")

    def _check_noise(self) -> None:
        if not 0 < self.image_share <= 1:
            raise ValueError(f"image_share must be in (0, 1], got {self.image_share}")
        if not 0 <= self.pixel_noise < math.inf:
            raise ValueError(f"pixel_noise must be >= 0 and finite, got {self.pixel_noise}")
        if self.pixel_noise and self.partition != "iid":
            raise ValueError(
                f'pixel_noise is a ladder over clients of partition = "iid", got "{self.partition}"'
            )
