"""Speak the Open Inference Protocol, version 2, so that common clients and probes work.

The one model is ``keyboard``, its tensors those of ``export.faces.words``; no state, no text yet.

References:
    [OIP] Open Inference Protocol, version 2, github.com/kserve/open-inference-protocol.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from export.faces.words import (
    DISTRIBUTION,
    LOG_PROBABILITIES,
    NEXT,
    TOKENS,
    TOP_K,
    WORDS,
)
from export.runtime.next_word import WordModel
from export.runtime.word_graph import GraphError, Prediction, State
from export.serve.doors.desk import ClientName, Desk, DeskOf
from export.serve.loaded.keyboard_version import ServedModel
from export.serve.loaded.shelf import NothingServedError

MODEL_NAME = "keyboard"

_LARGEST_BATCH = 64
_LARGEST_TOKENS = 4096
_ENCODED_AT_ONCE = 4096

_Number = TypeVar("_Number", np.int64, np.float32)

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol v2"])


class UnknownModelError(Exception):
    """Raised when a model is asked for that is not here."""


class UnusableTensorError(ValueError):
    """Raised when a tensor of a request cannot be used."""


class RequestTensor(BaseModel):
    """One input."""

    model_config = ConfigDict(extra="forbid")

    name: str
    shape: list[Annotated[int, Field(ge=0)]]
    datatype: Literal["INT64", "FP32"]
    parameters: dict[str, Any] | None = None
    # Any: nested or flat, as the protocol allows; numpy says whether it fits the shape.
    data: list[Any]


class WantedOutput(BaseModel):
    """One output that is wanted."""

    model_config = ConfigDict(extra="forbid")

    name: str
    parameters: dict[str, Any] | None = None


class InferRequest(BaseModel):
    """A question to a model; without ``outputs`` every one comes."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: list[RequestTensor]
    outputs: list[WantedOutput] | None = None


# Uptime checks ask by HEAD, which is the same without a body.
@router.head("/health/live", include_in_schema=False)
@router.get("/health/live")
async def live() -> dict[str, bool]:
    """Say that the process answers."""
    return {"live": True}


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready")
async def ready(desk: DeskOf) -> Response:
    """Say whether requests can be answered: 200 or 503."""
    is_ready = bool(desk.shelf.versions) and not desk.is_closing
    return _json({"ready": is_ready}, status=200 if is_ready else 503)


@router.get("")
async def server_metadata() -> dict[str, object]:
    """Say what this server is."""
    return {"name": "sotto-serve", "version": "1", "extensions": []}


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
async def model_metadata(
    model: str, client: ClientName, desk: DeskOf, version: str | None = None
) -> Response:
    """Say what a model takes and gives."""
    served = _served(desk, model, version)
    state = await desk.on_thread(client, lambda: desk.people.model_of(client, served).fresh_state())
    return _json(
        {
            "name": MODEL_NAME,
            "versions": desk.shelf.versions,
            "platform": "onnxruntime_onnx",
            "inputs": [
                {"name": TOKENS, "datatype": "INT64", "shape": [-1, -1]},
                {"name": TOP_K, "datatype": "INT64", "shape": [1]},
                *(_described(name, array) for name, array in state.items()),
            ],
            "outputs": [
                {"name": WORDS, "datatype": "INT64", "shape": [-1, -1]},
                {"name": LOG_PROBABILITIES, "datatype": "FP32", "shape": [-1, -1]},
                {"name": DISTRIBUTION, "datatype": "FP32", "shape": [-1, len(served.vocabulary)]},
                *(_described(NEXT + name, array) for name, array in state.items()),
            ],
        }
    )


@router.head("/models/{model}/ready", include_in_schema=False)
@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
async def model_ready(model: str, desk: DeskOf, version: str | None = None) -> Response:
    """Say whether a model can be asked."""
    try:
        _served(desk, model, version)
    except NothingServedError:
        return _json({"ready": False}, status=503)
    return _json({"ready": True})


@router.post("/models/{model}/infer")
@router.post("/models/{model}/versions/{version}/infer")
async def infer(
    model: str, asked: InferRequest, client: ClientName, desk: DeskOf, version: str | None = None
) -> Response:
    """Run the client's own model on tensors."""
    served = _served(desk, model, version)
    content = await desk.on_thread(
        client, lambda: _inferred(asked, desk.people.model_of(client, served), served.version)
    )
    return Response(content, media_type="application/json")


def _inferred(asked: InferRequest, model: WordModel, version: str) -> bytes:
    """Run a model and return the answer's JSON, which can be megabytes of numbers."""
    outputs = _run(model, asked.inputs)
    wanted = list(outputs) if asked.outputs is None else [output.name for output in asked.outputs]
    if not set(wanted) <= set(outputs):
        raise UnusableTensorError(f"outputs must be among {list(outputs)}, got {wanted}")
    answer: dict[str, object] = {"model_name": MODEL_NAME, "model_version": version}
    if asked.id is not None:
        answer["id"] = asked.id
    answer["outputs"] = [_answered(name, outputs[name]) for name in wanted]
    return msgspec.json.encode(answer)


def _served(desk: Desk, model: str, version: str | None) -> ServedModel:
    if model != MODEL_NAME:
        raise UnknownModelError
    return desk.shelf.version(version)


def _run(model: WordModel, given: list[RequestTensor]) -> dict[str, NDArray[np.generic]]:
    """Return every output of the model by name."""
    by_name = {tensor.name: tensor for tensor in given}
    tokens = _numbers(by_name.pop(TOKENS, None), TOKENS, np.int64)
    k = _numbers(by_name.pop(TOP_K, None), TOP_K, np.int64)
    if tokens.ndim != 2 or k.shape != (1,):
        raise UnusableTensorError(
            f"{TOKENS} must have shape [batch, time] and {TOP_K} [1], "
            f"got {list(tokens.shape)} and {list(k.shape)}"
        )
    if len(tokens) > _LARGEST_BATCH or tokens.size > _LARGEST_TOKENS:
        raise UnusableTensorError(
            f"{TOKENS} must have at most {_LARGEST_BATCH} texts and {_LARGEST_TOKENS} words, "
            f"got shape {list(tokens.shape)}"
        )
    state = dict(model.fresh_state(len(tokens)))
    for name, tensor in by_name.items():
        array = _numbers(tensor, name, np.float32)
        if name not in state or not _fits(array, state[name]):
            raise UnusableTensorError(
                f"{name[:80]!r} must be one of the state tensors {sorted(state)}, of the shape "
                f"that the step before gave, got {list(array.shape)}"
            )
        state[name] = array
    _check_context(model, tokens, state)
    found = _stepped(model, tokens, state, int(k[0]))
    _check_outcome(found)
    return {
        WORDS: found.words,
        LOG_PROBABILITIES: found.log_probabilities,
        DISTRIBUTION: found.distribution,
        **{NEXT + name: array for name, array in found.state.items()},
    }


def _check_context(model: WordModel, tokens: NDArray[np.int64], state: State) -> None:
    """Check that state and tokens together are no longer than the model can read."""
    fresh = model.fresh_state(len(tokens))
    lengths = [
        extent
        for name, array in state.items()
        for extent, start in zip(array.shape, fresh[name].shape, strict=True)
        if start == 0
    ]
    if len(set(lengths)) > 1:
        raise UnusableTensorError(
            f"state tensors must be of one length, got {sorted(set(lengths))}"
        )
    length = tokens.shape[1] + (lengths[0] if lengths else 0)
    if model.context_size is not None and length > model.context_size:
        raise UnusableTensorError(
            f"state and {TOKENS} must be at most {model.context_size} words long, got {length}"
        )


def _check_outcome(found: Prediction) -> None:
    """Raise UnusableTensorError if an output is no number, which JSON lacks.

    A model makes no such output itself; a state of huge numbers can.
    """
    state = {NEXT + name: array for name, array in found.state.items()}
    for name, array in {DISTRIBUTION: found.distribution, **state}.items():
        if not np.isfinite(array).all():
            raise UnusableTensorError(
                f"the state must be one that a step before gave: with this one {name!r} would not "
                "be finite"
            )


def _stepped(model: WordModel, tokens: NDArray[np.int64], state: State, k: int) -> Prediction:
    try:
        return model.step(tokens, state, k=k)
    except GraphError:
        raise
    except ValueError as error:
        raise UnusableTensorError(str(error)) from None


def _numbers(tensor: RequestTensor | None, name: str, dtype: type[_Number]) -> NDArray[_Number]:
    datatype = "INT64" if dtype is np.int64 else "FP32"
    if tensor is None or tensor.datatype != datatype:
        raise UnusableTensorError(f"inputs must have {name[:80]!r} as {datatype}")
    kinds = int if dtype is np.int64 else (int, float)
    try:
        # Through an object array, so that no number is rounded or wrapped on its way.
        flat = np.array(tensor.data, dtype=object).ravel()
        if not all(isinstance(value, kinds) and not isinstance(value, bool) for value in flat):
            raise ValueError
        with np.errstate(over="ignore"):  # Refused below, with its value.
            found = flat.astype(dtype).reshape(tensor.shape)
    except (ValueError, OverflowError, TypeError):
        raise UnusableTensorError(
            f"data of {name[:80]!r} must be {datatype} numbers that fill the shape {tensor.shape}"
        ) from None
    outside = ~np.isfinite(found).ravel()
    if outside.any():
        raise UnusableTensorError(
            f"data of {name[:80]!r} must be finite and at most {np.finfo(np.float32).max:.7g} in "
            f"magnitude, got {flat[outside][0]}"
        )
    return found


def _fits(given: NDArray[np.generic], fresh: NDArray[np.float32]) -> bool:
    """Return whether a state has the fresh one's shape; only axes that begin at 0 may be longer."""
    return given.ndim == fresh.ndim and all(
        start in (extent, 0) for extent, start in zip(given.shape, fresh.shape, strict=True)
    )


def _described(name: str, fresh: NDArray[np.float32]) -> Mapping[str, object]:
    """Describe a state tensor made for one text: an axis of 1 behind the first is the batch."""
    shape = [
        -1 if extent == 0 or (axis == 1) else extent for axis, extent in enumerate(fresh.shape)
    ]
    return {"name": name, "datatype": "FP32", "shape": shape}


def _answered(name: str, array: NDArray[np.generic]) -> Mapping[str, object]:
    datatype = "INT64" if array.dtype == np.int64 else "FP32"
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(array.shape),
        "data": msgspec.Raw(_numbers_json(array.ravel())),
    }


def _numbers_json(flat: NDArray[np.generic]) -> bytes:
    """Return numbers as a JSON list, a part at a time: none holds the interpreter for long."""
    parts = (
        msgspec.json.encode(flat[start : start + _ENCODED_AT_ONCE].tolist())[1:-1]
        for start in range(0, len(flat), _ENCODED_AT_ONCE)
    )
    return b"[%b]" % b",".join(parts)


def _json(content: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")


def error_body(message: str) -> bytes:
    """Return the JSON of an error as the protocol has it."""
    return msgspec.json.encode({"error": message})
