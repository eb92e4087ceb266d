"""The start of a run: a draw from its seed, or a model that was learned before.

``start_from`` names a start that ships with sotto, a packed file, or the folder of a release. No
guarantee of the run covers its parameters: they must come from public text, or from a run whose own
guarantee is counted beside this one's.
"""

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from models.compression.packed_model import read_packed
from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, VocabularySettings, plan_schema, released_schema
from models.settings.compression import release_step
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import (
    FedTpSettings,
    PersonalisationSettings,
    PFedHnSettings,
)
from models.text.languages import primary
from models.vector.codec import FlatVector
from models.vector.schema import SENT, Role, Schema
from server.closing.release_steps import round_to_nearest
from server.config.federation import FederationConfig
from server.config.shipped_starts import shipped_start
from server.personalisation.registry import build_server_half
from server.releases.files import StoredRelease, read_release
from server.releases.method_state import MethodState, MethodStateError, method_state_of

_BEGINS = "mixture"
_LOG = logging.getLogger(__name__)


class StartingModelError(ValueError):
    """Raised when a run cannot start from a model; names it and what differs."""


def starting_parameters(config: FederationConfig, plan: Plan) -> Tensor:
    """Return the parameters of round 0, in multiples of ``compression.downlink_step`` if it is set.

    They are flat float32, shape ``(elements,)``, in the order of the plan's ``released_schema``.

    Raises:
        PackedModelError: If ``start_from`` is a file that is damaged or no packed model.
        ReleaseError: If it is no release.
        StartingModelError: If it is a model of other sizes, words or languages, or its file is not
            in this installation.
    """
    parameters = _chosen_start(config, plan)
    step = release_step(config.compression)
    return parameters if step is None else round_to_nearest(parameters, step)


def check_starting_model(config: FederationConfig, plan: Plan) -> None:
    """Read all that a run takes from its start; errors as of both functions that take it."""
    starting_parameters(config, plan)
    starting_method(config, plan)


def starting_method(config: FederationConfig, plan: Plan) -> MethodState:
    """Return the state that the personalisation method begins with.

    A hypernetwork begins around the start's tensors, and those of a start that has a hypernetwork
    itself are what that one makes them around. One of output ``literal`` is drawn, with a warning.
    What a device keeps to itself it draws: only what all share travels to it.

    Raises:
        StartingModelError: As ``starting_parameters``, and PackedModelError and ReleaseError too;
            and if the start's own hypernetwork cannot be read.
    """
    generated = plan_schema(plan).with_roles(Role.GENERATED)
    if config.start_from is None or not generated.tensors:
        return method_state_of(config, plan.growth_stage)
    if not _begins_around(config.personalisation):
        _LOG.warning(
            "what is made for each device is drawn, though start_from names a start: only "
            'hypernetwork.output = "%s" begins there',
            _BEGINS,
        )
        return method_state_of(config, plan.growth_stage)
    initial = _part_of_start(config.start_from, plan, generated)
    return method_state_of(config, plan.growth_stage, initial=initial)


class _Start(NamedTuple):
    """A model that was learned before.

    Attributes:
        told: Its name in errors.
        schema: What its parameters hold.
        words: Its word list, or None.
        languages: BCP 47 tags of its words, where it says so.
    """

    told: str
    model: ModelSettings
    schema: Schema
    words: VocabularySettings | None
    languages: tuple[str, ...]
    parameters: FlatVector


def _chosen_start(config: FederationConfig, plan: Plan) -> Tensor:
    wanted = released_schema(plan)
    if config.start_from is None:
        whole = initial_parameters(config.model, config.seed)
        return part_of(whole, schema_of(config.model), wanted)
    return _part_of_start(config.start_from, plan, wanted)


def _part_of_start(start_from: str, plan: Plan, wanted: Schema) -> Tensor:
    start = _read(start_from, wanted)
    _check_words(start, plan.vocabulary)
    _check_model(start, wanted)
    _check_layers(start, plan)
    return part_of(torch.tensor(start.parameters), start.schema, wanted)


def _read(start_from: str, wanted: Schema) -> _Start:
    shipped = shipped_start(start_from)
    path = Path(start_from) if shipped is None else shipped
    if shipped is not None and not shipped.exists():
        raise StartingModelError(
            f"start_from must be a start that this installation holds, got {start_from!r} without "
            f"its file {shipped}; install sotto again, or give a path"
        )
    if path.is_file():
        packed = read_packed(path)
        told = packed.description
        schema, tags = schema_of(told.model), tuple(told.language.split(","))
        return _Start(start_from, told.model, schema, told.vocabulary, tags, packed.parameters)
    stored = read_release(path)
    plan, schema, parameters = stored.plan, released_schema(stored.plan), stored.parameters
    if not wanted.slices.keys() <= schema.slices.keys() and _begins_around(plan.personalisation):
        try:
            schema, parameters = _with_bases(stored)
        except MethodStateError as error:
            raise StartingModelError(
                f"start_from must be whole, {start_from} is not: {error}"
            ) from None
    tags = _languages(plan.vocabulary)
    return _Start(start_from, plan.model, schema, plan.vocabulary, tags, parameters)


def _with_bases(stored: StoredRelease) -> tuple[Schema, FlatVector]:
    """Return a release's parameters, and behind them what its hypernetwork makes tensors around."""
    plan = stored.plan
    travelling = plan_schema(plan).with_roles(*SENT)
    half = build_server_half(plan.personalisation, travelling, model=plan.model, run_seed=plan.seed)
    generated = travelling.with_roles(Role.GENERATED)
    state = MethodState(half, generated)
    state.restore(stored.personalisation)
    phi, places = state.phi().numpy(), state.phi_schema.slices
    bases = [phi[places[f"outputs.{index}.base"]] for index in range(len(generated.tensors))]
    whole = Schema((*released_schema(plan).tensors, *generated.tensors))
    return whole, np.concatenate([stored.parameters, *bases])


def _begins_around(method: PersonalisationSettings) -> bool:
    """Return whether a method makes tensors around one base for everybody."""
    return (
        isinstance(method, FedTpSettings | PFedHnSettings) and method.hypernetwork.output == _BEGINS
    )


def _check_words(start: _Start, wanted: VocabularySettings | None) -> None:
    """Refuse a model whose rows stand for other words: its shapes may be the same."""
    found = start.words
    if (None if found is None else found.sha256) == (None if wanted is None else wanted.sha256):
        _check_languages(start, wanted)
        return
    language = f', of language "{",".join(start.languages)}"' if start.languages else ""
    raise StartingModelError(
        f"start_from must be a model with this run's word list, which is {_list_in_words(wanted)}; "
        f"{start.told} has another: {_list_in_words(found)}{language}. Set [vocabulary] to what it "
        "was learned with, or start from another"
    )


def _check_languages(start: _Start, wanted: VocabularySettings | None) -> None:
    """Refuse a model of another language, where both it and the run's list say theirs."""
    found, named = start.languages, _languages(wanted)
    if found and named and set(map(primary, found)) != set(map(primary, named)):
        raise StartingModelError(
            f'start_from must be a model of the languages of [vocabulary], "{",".join(named)}"; '
            f'{start.told} is of "{",".join(found)}". Set languages to those of its text'
        )


def _languages(words: VocabularySettings | None) -> tuple[str, ...]:
    return () if words is None or words.languages is UNSET else words.languages


def _list_in_words(words: VocabularySettings | None) -> str:
    if words is None:
        return "none"
    return f"{words.name} of {words.size} words with digest {words.sha256[:12]}"


def _check_model(start: _Start, wanted: Schema) -> None:
    found = {spec.name: spec.shape for spec in start.schema.tensors}
    for spec in wanted.tensors:
        if found.get(spec.name) != spec.shape:
            raise StartingModelError(
                f"start_from must have {spec.name} of shape {spec.shape}, but {start.told} has "
                f"{found.get(spec.name, 'none')}; set [model] to what it was learned with, "
                "or start from one that shares so much"
            )


def _check_layers(start: _Start, wanted: Plan) -> None:
    """Refuse a model with layers that a first stage would drop without a word."""
    beyond = set(schema_of(start.model).slices) - set(schema_of(wanted.model).slices)
    if wanted.growth is not None and beyond:
        raise StartingModelError(
            f"start_from must be a model of the first stage of growth, {start.told} has "
            f"{min(beyond)} besides; leave out growth"
        )
