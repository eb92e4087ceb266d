from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NextRequest(_message.Message):
    __slots__ = ("text", "count", "version", "incognito", "kept_words")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCOGNITO_FIELD_NUMBER: _ClassVar[int]
    KEPT_WORDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    count: int
    version: str
    incognito: bool
    kept_words: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, text: _Optional[str] = ..., count: _Optional[int] = ..., version: _Optional[str] = ..., incognito: _Optional[bool] = ..., kept_words: _Optional[_Iterable[str]] = ...) -> None: ...

class NextAnswer(_message.Message):
    __slots__ = ("version", "suggestions", "strip")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    STRIP_FIELD_NUMBER: _ClassVar[int]
    version: str
    suggestions: _containers.RepeatedCompositeFieldContainer[SuggestedWord]
    strip: SuggestionStrip
    def __init__(self, version: _Optional[str] = ..., suggestions: _Optional[_Iterable[_Union[SuggestedWord, _Mapping]]] = ..., strip: _Optional[_Union[SuggestionStrip, _Mapping]] = ...) -> None: ...

class SuggestedWord(_message.Message):
    __slots__ = ("word", "probability")
    WORD_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    word: str
    probability: float
    def __init__(self, word: _Optional[str] = ..., probability: _Optional[float] = ...) -> None: ...

class SuggestionStrip(_message.Message):
    __slots__ = ("left", "centre", "right")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    CENTRE_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    left: StripPlace
    centre: StripPlace
    right: StripPlace
    def __init__(self, left: _Optional[_Union[StripPlace, _Mapping]] = ..., centre: _Optional[_Union[StripPlace, _Mapping]] = ..., right: _Optional[_Union[StripPlace, _Mapping]] = ...) -> None: ...

class StripPlace(_message.Message):
    __slots__ = ("text", "is_verbatim", "is_correction")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_VERBATIM_FIELD_NUMBER: _ClassVar[int]
    IS_CORRECTION_FIELD_NUMBER: _ClassVar[int]
    text: str
    is_verbatim: bool
    is_correction: bool
    def __init__(self, text: _Optional[str] = ..., is_verbatim: _Optional[bool] = ..., is_correction: _Optional[bool] = ...) -> None: ...
