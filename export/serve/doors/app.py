"""Put the routes together, behind one guard."""

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.types import ASGIApp

from export.serve.doors import (
    api_page,
    inference_protocol,
    keyboard_api,
    keyboard_files,
    page,
    speech_api,
)
from export.serve.doors.desk import Desk
from export.serve.doors.errors import add_error_answers
from export.serve.doors.guard import Guard
from export.serve.folder.settings import LimitSettings

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
    """Return the application, guarded."""
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

    add_error_answers(app)
    return Guard(app, limits, desk)
