"""Answer ``POST /v1/audio/speech``, as OpenAI's clients ask it: a text in a voice.

The voice is the client's own or the shared one, never another client's. Sound is sent while it is
made. A text or format that cannot be spoken is an error with a status; what fails later ends the
connection, so that nobody takes half a file for a whole one.

Reference:
    OpenAI, "Create speech", https://platform.openai.com/docs/api-reference/audio/createSpeech.
"""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Message, Receive, Scope, Send

from export.serve.doors.connections import TAKEN_WITHIN_S
from export.serve.doors.desk import ClientName, DeskOf
from export.serve.loaded.voice_version import SHARED_VOICE
from export.serve.loaded.voices import Speech
from export.speaking.sound_file import MEDIA_TYPES, SoundFormat, SoundFormatError
from export.speaking.voice import FASTEST, SLOWEST
from models.text.spoken_text import SpeechTextError

router = APIRouter(prefix="/v1/audio", tags=["voice"])

_PRESENT = "voice"
_VOICE = f"the client's own name, or \"{SHARED_VOICE}\" for everybody's"
# Any: what FastAPI takes for a part of an OpenAPI document.
_FILES: dict[str, Any] = {
    name: {"schema": {"type": "string", "format": "binary"}} for name in MEDIA_TYPES.values()
}


class NotYoursError(Exception):
    """Raised when a request names a voice that is neither its client's own nor everybody's."""


class SpeechRequest(BaseModel):
    """A question for speech."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str, Field(description='"voice", or a version of it that is served')]
    input: Annotated[str, Field(description="written English")]
    voice: Annotated[str, Field(description=_VOICE)]
    response_format: Annotated[
        Literal["mp3", "opus", "aac", "flac", "wav", "pcm"],
        Field(description="pcm: 16 bits, little-endian, at the voice's own sampling rate"),
    ] = "mp3"
    speed: Annotated[
        float, Field(ge=SLOWEST, le=FASTEST, description="how much faster; the pitch stays")
    ] = 1.0
    stream_format: Annotated[
        Literal["audio"], Field(description="the file itself, sent while it is made")
    ] = "audio"


class SpokenResponse(StreamingResponse):
    """Speech that is sent while it is made, and gives its place back however that ends."""

    def __init__(self, speech: Speech, media_type: str) -> None:
        super().__init__(speech.stream(), media_type=media_type)
        self._speech = speech

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; TimeoutError if the client takes no sound for too long."""

        async def send_soon(message: Message) -> None:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await send(message)

        try:
            await super().__call__(scope, receive, send_soon)
        finally:
            self._speech.close()


@router.post("/speech", response_class=StreamingResponse, responses={200: {"content": _FILES}})
async def speak(asked: SpeechRequest, client: ClientName, desk: DeskOf) -> SpokenResponse:
    """Say a text in the client's own voice, or in the shared one.

    Raises:
        NotYoursError: If another voice is asked for.
        NoSharedVoiceError: If the shared one is, and a person's own part is more than the speaker.
        SpeechTextError: If the text cannot be said, or is too long.
        SoundFormatError: If it cannot be encoded so.
    """
    if asked.voice not in (client, SHARED_VOICE):
        raise NotYoursError
    longest = desk.voices.limits.characters
    if len(asked.input) > longest:
        raise SpeechTextError(
            f"input must have at most {longest} characters, got {len(asked.input)}; ask in parts"
        )
    served = desk.voices.shelf.version(None if asked.model == _PRESENT else asked.model)
    wanted = _known(asked.response_format)
    is_own = asked.voice != SHARED_VOICE
    speech = await desk.voices.speak(
        client, served, asked.input, own=is_own, wanted=wanted, speed=asked.speed
    )
    media_type = MEDIA_TYPES[wanted]
    if wanted == "pcm":
        media_type += f";rate={served.voice.sample_rate_hz};channels=1"
    return SpokenResponse(speech, media_type)


def _known(wanted: SoundFormat | Literal["aac"]) -> SoundFormat:
    """Return the format, if there is an encoder for it in libsndfile at all."""
    if wanted == "aac":
        raise SoundFormatError(
            f"aac cannot be encoded here; ask for one of {', '.join(sorted(MEDIA_TYPES))}"
        )
    return wanted
