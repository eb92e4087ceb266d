"""The model some rounds ago, for a rule that asks where it has been going."""

import logging

import torch
from torch import Tensor

from models.plan.plan import decode_plan, released_schema
from models.plan.release_record import PLAN_FILE, ReleaseError
from models.vector.schema import Schema
from server.releases.files import ReleaseFolder

_LOG = logging.getLogger(__name__)
_CANNOT = "the aggregation cannot look back to round %s: %s"


def earlier_parameters(
    releases: ReleaseFolder, schema: Schema, round_number: int, look_back: int
) -> Tensor | None:
    """Return the parameters of the oldest release within reach that holds the same tensors.

    They are flat float32, shape ``(elements,)``; None if there is none, or ``look_back`` is 0.
    Damaged releases are passed over. A model that grew has none before the third round of its
    stage: it grows in memory, the first round releases it, and the second starts from that.
    """
    for number in range(max(0, round_number - look_back), round_number):
        if _schema_of(releases, number) != schema:
            continue
        try:
            return torch.tensor(releases.read(number).parameters)
        except ReleaseError as error:
            _LOG.warning(_CANNOT, number, error)
    return None


def _schema_of(releases: ReleaseFolder, number: int) -> Schema | None:
    """Return the schema of a release, from its plan alone: the model may be large."""
    if not releases.path(number).is_dir():
        return None
    try:
        return released_schema(decode_plan((releases.path(number) / PLAN_FILE).read_bytes()))
    except (OSError, ValueError) as error:
        _LOG.warning(_CANNOT, number, error)
        return None
