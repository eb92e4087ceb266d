"""Serve the page at ``/``: its files come from this server, and it may reach nothing else."""

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from export.page.page_files import INDEX, POLICY, SERVICE_WORKER, PageFile, Source
from export.serve.doors.desk import DeskOf

SERVED_FROM = Source(description="v1/keyboard", files="v1/keyboard", needs_token=True)

_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_FOREVER = "public, max-age=31536000, immutable"
_ASK_FIRST = "no-cache"

router = APIRouter(include_in_schema=False)


@router.head("/")
@router.get("/")
async def index(desk: DeskOf, request: Request) -> Response:
    """Return the page."""
    return _answer(desk.page[INDEX], request)


@router.head("/service_worker.js")
@router.get("/service_worker.js")
async def service_worker(desk: DeskOf, request: Request) -> Response:
    """Return what keeps the page in the browser; it must lie above what it keeps."""
    return _answer(desk.page[SERVICE_WORKER], request)


@router.head("/page/{name:path}")
@router.get("/page/{name:path}")
async def part(name: str, desk: DeskOf, request: Request) -> Response:
    """Return one of the page's files in memory, never one of the disk; HTTPException if none."""
    file = desk.page.get(f"page/{name}")
    if file is None:
        raise HTTPException(404, "the page has no such file")
    return _answer(file, request)


def _answer(file: PageFile, request: Request) -> Response:
    compresses = "gzip" in request.headers.get("accept-encoding", "")
    tag = f'"{file.sha256}"'
    headers = _HEADERS | {
        "ETag": tag,
        "Cache-Control": _FOREVER if file.never_changes else _ASK_FIRST,
        "Vary": "Accept-Encoding",
    }
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = file.content
    if compresses and file.compressed is not None:
        headers["Content-Encoding"] = "gzip"
        content = file.compressed
    return Response(memoryview(content), headers=headers, media_type=file.media_type)
