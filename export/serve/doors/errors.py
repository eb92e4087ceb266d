"""Answer every error in one form, which says what to do and holds no text of anybody's."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from export.bundles.manifest_entries import BundleError
from export.runtime.word_graph import GraphError
from export.serve.doors import inference_protocol
from export.serve.doors.desk import NotKnownError, TooOftenError
from export.serve.doors.guard import error_body
from export.serve.doors.inference_protocol import UnknownModelError, UnusableTensorError
from export.serve.doors.room import TooManyCallsError
from export.serve.doors.speech_api import NotYoursError
from export.serve.loaded.personal_models import NoPersonalModelError
from export.serve.loaded.shelf import NothingServedError, UnknownVersionError
from export.serve.loaded.voice_version import SHARED_VOICE, NoSharedVoiceError
from export.serve.loaded.voices import TooManySpeechesError
from export.speaking.sound_file import SoundFormatError
from models.text.spoken_text import SpeechTextError

_LOG = logging.getLogger(__name__)

_Handler = Callable[[Request, Exception], Awaitable[Response]]


@dataclass(frozen=True)
class Answer:
    """The error that a client is told.

    Attributes:
        code: The code by which programs tell errors apart.
        message: The same for people.
        retry_after_s: Seconds after which to ask again; None if that would not help.
        is_logged: Whether the error goes to the log: only one that is about a file, not a text.
    """

    status: int
    code: str
    message: str
    retry_after_s: int | None = None
    asks_for_token: bool = False
    is_logged: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Return the answer's own headers."""
        retry = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return retry | ({"WWW-Authenticate": "Bearer"} if self.asks_for_token else {})


def add_error_answers(app: FastAPI) -> None:
    """Let an application answer every error that its routes raise."""
    for kind, answer in _ANSWERS.items():
        app.add_exception_handler(kind, _handler(answer))


def _handler(answer: Answer | Callable[[Any], Answer]) -> _Handler:
    async def handle(request: Request, error: Exception) -> Response:
        told = answer if isinstance(answer, Answer) else answer(error)
        if told.is_logged:
            _LOG.error("request %s: %s", request.state.request_id, error)
        return _respond(request, told)

    return handle


def _respond(request: Request, answer: Answer) -> Response:
    """Return an error; the inference protocol wants its own, plainer form."""
    if request.url.path.startswith("/v2"):
        body = inference_protocol.error_body(answer.message)
    else:
        body = error_body(answer.code, answer.message, request.state.request_id)
    return Response(body, answer.status, headers=answer.headers, media_type="application/json")


def _told(status: int, code: str) -> Callable[[Exception], Answer]:
    """Return what answers with the error's own words, for errors whose words hold no text."""
    return lambda error: Answer(status, code, str(error))


def _too_often(error: TooOftenError) -> Answer:
    return Answer(429, "too_often", str(error), retry_after_s=error.wait_s)


def _invalid(error: RequestValidationError) -> Answer:
    # Where and which rule, never the value: it may be what was typed.
    faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return Answer(422, "invalid", "; ".join(faults))


def _too_many_speeches(error: TooManySpeechesError) -> Answer:
    if error.is_own:
        message = "this client has as many texts said at once as it may; wait for one to end"
        return Answer(429, "too_often", message, retry_after_s=1)
    return Answer(503, "busy", "the server speaks as much as it can; try again", retry_after_s=1)


_FAILED = Answer(500, "internal", "the server failed; its log has this request's id")
# An error is answered by the entry of its nearest class.
_ANSWERS: dict[type[Exception], Answer | Callable[[Any], Answer]] = {
    NotKnownError: lambda error: Answer(401, "wrong_token", str(error), asks_for_token=True),
    TooOftenError: _too_often,
    TooManyCallsError: lambda error: Answer(429, "too_often", str(error), retry_after_s=1),
    UnusableTensorError: _told(422, "unusable"),
    SpeechTextError: _told(422, "unusable"),
    SoundFormatError: _told(400, "unknown_format"),
    NotYoursError: Answer(
        403,
        "not_yours",
        f'voice must be the name of the client whose token this is, or "{SHARED_VOICE}"',
    ),
    NoSharedVoiceError: Answer(
        404,
        "no_shared_voice",
        "more of this voice is each person's own than who speaks, so there is none of everybody's; "
        "ask with the client's own name",
    ),
    TooManySpeechesError: _too_many_speeches,
    GraphError: _FAILED,
    RequestValidationError: _invalid,
    UnknownVersionError: _told(404, "unknown_version"),
    UnknownModelError: Answer(
        404,
        "unknown_model",
        f"the one model that takes tensors is {inference_protocol.MODEL_NAME}; "
        "a voice is asked at /v1/audio/speech",
    ),
    NothingServedError: lambda error: Answer(503, "nothing_served", str(error), retry_after_s=5),
    BundleError: Answer(
        503,
        "unusable_model",
        "this client's own model cannot be used; the server's log has this request's id",
        is_logged=True,
    ),
    NoPersonalModelError: _told(404, "no_personal_model"),
    HTTPException: lambda error: Answer(error.status_code, "http", str(error.detail)),
    Exception: _FAILED,
}
