"""Keep a run on disk so that it can be stopped at any moment, resumed and exported.

A run's folder holds ``run.json`` (configuration and seed, fixed at the start), ``metrics.jsonl``,
``final.json`` once it is over, and ``releases/<round>/`` in the layout of a coordinator's
releases, so that ``sotto-export`` reads either. A simulated release is unsigned: nobody has to
trust it but the person who ran it. Only the newest and the best release are kept.
"""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from models.codec import decode, encode
from models.model_settings import schema_of
from models.parameters import parameters_sha256
from models.plan import Plan, decode_plan
from models.vocabulary import Vocabulary
from privacy.atomic import write_atomically
from privacy.noise import noise_mode
from simulation.metrics import Figures, Value

FORMAT_VERSION = 1
RUN_FILE = "run.json"
FINAL_FILE = "final.json"


class CheckpointError(ValueError):
    """Raised when a run's folder cannot be resumed; the text says why."""


class RunDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fix what a run computes, so that it is never resumed as another run.

    Attributes:
        run: Identifier, 32 hex digits.
        seed: Seed of the run.
        configuration: The TOML tables.
    """

    run: str
    seed: int
    configuration: dict[str, Any]  # TOML values.


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe a release, as ``release.json`` of a coordinator does.

    Attributes:
        format_version: Version of this layout.
        run: Identifier of the run.
        round: Round whose model this is.
        parameters_sha256: Hex digest of the parameters' little-endian float32 bytes.
        schema_sha256: Hex digest of the schema.
        previous_sha256: Digest of the parameters the round started from.
        metrics: Figures of the model.
        guarantee: What the noise mode promises.
    """

    format_version: int = FORMAT_VERSION
    run: str
    round: int
    parameters_sha256: str
    schema_sha256: str
    previous_sha256: str
    metrics: dict[str, Value]
    guarantee: str


class RunFolder:
    """Write and read one run's folder."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which is made when the run begins."""
        self.folder = folder

    def begin(self, description: RunDescription) -> None:
        """Record what the run computes, or check that it is what the folder already holds.

        Raises:
            CheckpointError: If the folder holds another run.
        """
        path = self.folder / RUN_FILE
        encoded = msgspec.json.format(msgspec.json.encode(description, order="sorted"))
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, encoded, mode=0o644)
        elif path.read_bytes() != encoded:
            raise CheckpointError(
                f"{self.folder} holds a run with another configuration or seed; "
                "give another --out, or remove the folder"
            )

    def save(
        self,
        plan: Plan,
        vocabulary: Vocabulary,
        parameters: Tensor,
        *,
        round_number: int,
        previous_sha256: bytes,
        metrics: dict[str, Value],
        keep_rounds: set[int],
    ) -> None:
        """Write the release of a round and remove those that are not to be kept.

        The folder gets its name when everything in it is on disk: a release is there whole or
        not at all.
        """
        releases = self.folder / "releases"
        building = releases / ".building"
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        schema = schema_of(plan.model)
        record = ReleaseRecord(
            run=plan.run,
            round=round_number,
            parameters_sha256=parameters_sha256(parameters).hex(),
            schema_sha256=schema.sha256.hex(),
            previous_sha256=previous_sha256.hex(),
            metrics=metrics,
            guarantee=noise_mode(plan.privacy).guarantee,
        )
        files: dict[str, bytes | memoryview] = {
            "parameters.bin": encode(schema, parameters.numpy()),
            "plan.json": plan.encode(),
            "vocabulary.txt": vocabulary.to_bytes(),
            "release.json": msgspec.json.encode(record),
        }
        for name, content in files.items():
            write_atomically(building / name, content, mode=0o644)
        building.rename(releases / f"{round_number:06d}")
        for number in set(self.rounds()) - keep_rounds - {round_number}:
            shutil.rmtree(releases / f"{number:06d}")

    def finish(self, figures: Figures) -> None:
        """Record the final figures: the run is over."""
        write_atomically(self.folder / FINAL_FILE, msgspec.json.encode(figures), mode=0o644)

    def final_figures(self) -> dict[str, Value] | None:
        """Return the final figures of a run that is over, else None."""
        path = self.folder / FINAL_FILE
        if not path.exists():
            return None
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Value])

    def rounds(self) -> list[int]:
        """Return the rounds whose releases are there, in order."""
        names = (path.name for path in (self.folder / "releases").glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdigit())

    def load(self, round_number: int) -> tuple[Plan, Tensor, ReleaseRecord]:
        """Return a release's plan, its parameters (flat float32, ``(elements,)``) and its record.

        Raises:
            CheckpointError: If a file is missing or damaged.
        """
        folder = self.folder / "releases" / f"{round_number:06d}"
        try:
            plan = decode_plan((folder / "plan.json").read_bytes())
            record = msgspec.json.decode((folder / "release.json").read_bytes(), type=ReleaseRecord)
            payload = bytearray((folder / "parameters.bin").read_bytes())
            flat = torch.from_numpy(decode(schema_of(plan.model), payload).copy())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder} cannot be read: {error}") from None
        if parameters_sha256(flat).hex() != record.parameters_sha256:
            raise CheckpointError(f"{folder}/parameters.bin is not what release.json describes")
        return plan, flat, record
