"""Answer ``POST /v1/next``: the words that may follow what a client's person has typed."""

from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from export.runtime.next_word import SLOTS
from export.serve.doors.desk import ClientName, DeskOf
from export.serve.loaded.people import MOST_KEPT_WORDS, MOST_SUGGESTIONS

router = APIRouter(prefix="/v1", tags=["keyboard"])


class NextRequest(BaseModel):
    """A question for words."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Annotated[
        str, Field(description="everything typed so far; of a long text the end is read")
    ]
    count: Annotated[int, Field(ge=1, le=MOST_SUGGESTIONS, description="words at most")] = SLOTS
    version: Annotated[
        str | None, Field(description="a version that is served; else the present")
    ] = None
    incognito: Annotated[bool, Field(description="keep nothing of this text in memory")] = False
    offensive: Annotated[
        bool, Field(description="suggest words of the shipped blocklists, too; the person's choice")
    ] = False
    kept_words: Annotated[
        list[str],
        Field(
            max_length=MOST_KEPT_WORDS,
            description="words that the strip does not correct: those of which the person took a "
            "correction back or which they typed twice",
        ),
    ] = []


class SuggestedWord(BaseModel):
    """One suggestion."""

    word: Annotated[str, Field(description="lower-case, as in the word list")]
    probability: Annotated[float, Field(description="of being the next word, in [0, 1]")]


class StripPlace(BaseModel):
    """One place of the suggestion strip."""

    text: Annotated[str, Field(description="what is shown, and typed when it is taken")]
    kind: Annotated[
        Literal["word", "verbatim", "correction"],
        Field(
            description="verbatim: what is typed already; correction: a blank or a mark takes it "
            "instead of what is typed"
        ),
    ]


class SuggestionStrip(BaseModel):
    """The three places of a keyboard's strip, the best word in the centre."""

    left: StripPlace | None
    centre: StripPlace | None
    right: StripPlace | None


class NextAnswer(BaseModel):
    """The suggestions, likeliest first; none where no word begins so."""

    version: Annotated[str, Field(description="what answered")]
    suggestions: list[SuggestedWord]
    strip: SuggestionStrip


@router.post("/next", response_model=NextAnswer)
async def suggest(asked: NextRequest, client: ClientName, desk: DeskOf) -> Response:
    """Suggest the next word, or the end of the one begun."""
    served = desk.shelf.version(asked.version)
    found = await desk.on_thread(
        client,
        lambda: desk.people.suggest(
            client,
            served,
            asked.text,
            count=asked.count,
            keep=not asked.incognito,
            offensive=asked.offensive,
            kept_words=asked.kept_words,
        ),
    )
    answer = {"version": served.version, "suggestions": found.words, "strip": found.strip}
    return Response(msgspec.json.encode(answer), media_type="application/json")
