"""Put the routes together, and answer every error in one form that holds no text."""

import logging

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from export.manifest_base import BundleError
from export.runtime import GraphError
from export.serve import (
    api_page,
    inference_protocol,
    keyboard_api,
    keyboard_files,
    page,
    speech_api,
)
from export.serve.desk import Desk, NotKnownError, TooOftenError
from export.serve.guard import Guard, error_body
from export.serve.inference_protocol import UnknownModelError, UnusableTensorError
from export.serve.metrics import CONTENT_TYPE
from export.serve.personal_models import NoPersonalModelError
from export.serve.settings import LimitSettings
from export.serve.shelf import NothingServedError, UnknownVersionError
from export.serve.speech_api import NotYoursError
from export.serve.voices import TooManySpeechesError
from export.sound_file import SoundFormatError
from models.speech_text import SpeechTextError

_LOG = logging.getLogger(__name__)
_DESCRIPTION = (
    "Next words and speech for everyone, from their own model. Each client has a bearer token."
)
# Spans and records of a request can hold what was typed.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def make_app(desk: Desk, limits: LimitSettings) -> ASGIApp:
    """Return the application, guarded.

    Args:
        desk: What the server works with.
        limits: What one client may ask.
    """
    app = FastAPI(
        title="sotto-serve",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
    )
    app.state.desk = desk
    for part in (keyboard_api, keyboard_files, speech_api, inference_protocol, api_page, page):
        app.include_router(part.router)

    @app.get("/metrics", tags=["operation"])
    async def metrics() -> Response:
        """Give the figures of the server, for Prometheus."""
        desk.metrics.texts.set(len(desk.people))
        return Response(desk.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    _add_error_answers(app)
    return Guard(app, limits, desk.metrics)


def _add_error_answers(app: FastAPI) -> None:
    async def not_known(request: Request, _: Exception) -> Response:
        message = "the bearer token is missing or nobody's; get one with `sotto-serve token`"
        headers = {"WWW-Authenticate": "Bearer"}
        return _error(request, 401, "wrong_token", message, headers=headers)

    async def too_often(request: Request, error: Exception) -> Response:
        wait_s = error.wait_s if isinstance(error, TooOftenError) else 1
        message = f"this client asks too often; ask again in {wait_s} s"
        headers = {"Retry-After": str(wait_s)}
        return _error(request, 429, "too_often", message, headers=headers)

    async def unusable(request: Request, error: Exception) -> Response:
        return _error(request, 422, "unusable", str(error))

    async def invalid(request: Request, error: Exception) -> Response:
        faults = error.errors() if isinstance(error, RequestValidationError) else []
        # Where and which rule, never the value: it may be what was typed.
        told = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
        return _error(request, 422, "invalid", told)

    async def no_version(request: Request, error: Exception) -> Response:
        return _error(request, 404, "unknown_version", str(error))

    async def no_model(request: Request, _: Exception) -> Response:
        return _error(request, 404, "unknown_model", "the model must be keyboard")

    async def nothing_served(request: Request, _: Exception) -> Response:
        message = "no version is served yet; promote one with `sotto-serve promote`"
        return _error(request, 503, "nothing_served", message, headers={"Retry-After": "5"})

    async def no_personal_model(request: Request, _: Exception) -> Response:
        message = (
            "this client has no model of its own on this version; add one with `sotto-serve person`"
        )
        return _error(request, 404, "no_personal_model", message)

    async def unusable_model(request: Request, error: Exception) -> Response:
        _LOG.error("request %s: %s", request.state.request_id, error)  # about a file, not a text
        message = "this client's own model cannot be used; the server's log has this request's id"
        return _error(request, 503, "unusable_model", message)

    async def not_yours(request: Request, _: Exception) -> Response:
        message = "voice must be the name of the client whose token this is"
        return _error(request, 403, "not_yours", message)

    async def no_such_format(request: Request, error: Exception) -> Response:
        return _error(request, 400, "unknown_format", str(error))

    async def too_many_speeches(request: Request, error: Exception) -> Response:
        headers = {"Retry-After": "1"}
        if isinstance(error, TooManySpeechesError) and error.is_own:
            message = "this client has as many texts said at once as it may; wait for one to end"
            return _error(request, 429, "too_often", message, headers=headers)
        message = "the server speaks as much as it can; try again"
        return _error(request, 503, "busy", message, headers=headers)

    async def plain(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = str(error.detail) if isinstance(error, HTTPException) else ""
        return _error(request, status, "http", detail)

    async def failed(request: Request, _: Exception) -> Response:
        return _error(request, 500, "internal", "the server failed; its log has this request's id")

    answers = {
        NotKnownError: not_known,
        TooOftenError: too_often,
        UnusableTensorError: unusable,
        SpeechTextError: unusable,
        SoundFormatError: no_such_format,
        NotYoursError: not_yours,
        TooManySpeechesError: too_many_speeches,
        GraphError: failed,
        RequestValidationError: invalid,
        UnknownVersionError: no_version,
        UnknownModelError: no_model,
        NothingServedError: nothing_served,
        BundleError: unusable_model,
        NoPersonalModelError: no_personal_model,
        HTTPException: plain,
        Exception: failed,
    }
    for kind, answer in answers.items():
        app.add_exception_handler(kind, answer)


def _error(
    request: Request,
    status: int,
    code: str,
    message: str,
    *,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return an error; the inference protocol wants its own, plainer form."""
    if request.url.path.startswith("/v2"):
        body = inference_protocol.error_body(message)
    else:
        body = error_body(code, message, request.state.request_id)
    return Response(body, status, headers=headers, media_type="application/json")
