"""Give the server's figures to Prometheus, at an address of their own.

They rise with each key that somebody types. So whoever reads them learns when and how much people
type, and they do not stand where everybody may ask.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from export.serve.doors.desk import Desk
from export.serve.loaded.metrics import CONTENT_TYPE

METRICS_PATH = "/metrics"


def make_metrics_app(desk: Desk) -> Starlette:
    """Return the application, which knows one path."""

    async def metrics(_: Request) -> Response:
        desk.metrics.texts.set(len(desk.people))
        return Response(desk.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    return Starlette(routes=[Route(METRICS_PATH, metrics)])
