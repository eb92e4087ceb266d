"""Let clients' voices speak while requests for words go on: threads and limits of their own.

A text is minutes of a processor, a word a millisecond. So voices have threads of lower priority, a
task for each piece of sound, and a limit of texts at a time.
"""

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import SpeechSettings
from export.serve.loaded.metrics import ServingMetrics
from export.serve.loaded.shelf import Shelf
from export.serve.loaded.voice_version import ServedVoice, voice_of
from export.speaking.sound_file import SoundEncoder, SoundFormat
from export.speaking.voice import Piece

# Of Linux' nice values. Five are a third of the weight; at the last place a voice would starve.
_STEPS_BACK, _LAST_PLACE = 5, 19


class TooManySpeechesError(Exception):
    """Raised when too many texts are being said: the client's if ``is_own``, else all."""

    def __init__(self, *, is_own: bool) -> None:
        super().__init__()
        self.is_own = is_own


class Speech:
    """One text that is being said; ``close`` it, whatever happens."""

    def __init__(
        self,
        pieces: Iterator[Piece],
        encoder: SoundEncoder,
        *,
        threads: ThreadPoolExecutor,
        said: Callable[[float], None],
        close: Callable[[], None],
    ) -> None:
        self._pieces, self._encoder, self._threads = pieces, encoder, threads
        self._said, self._close = said, close
        self._is_done = False
        self._first = b""

    async def begin(self) -> None:
        """Make the first bytes, so that what fails at the first step is an error with a status."""
        self._first = await self._next()

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the file's bytes, the first ones made by ``begin``."""
        yield self._first
        while not self._is_done:
            yield await self._next()

    def close(self) -> None:
        """Give the client's place back; a second time does nothing."""
        self._is_done = True
        self._close()

    async def _next(self) -> bytes:
        """Return the next bytes that can be sent; none at the end."""
        loop = asyncio.get_running_loop()
        while not self._is_done:
            found = await loop.run_in_executor(self._threads, self._encoded)
            if found:
                return found
        return b""

    def _encoded(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            self._is_done = True
            return self._encoder.end()
        self._said(len(piece.sound))
        return self._encoder.add(piece.sound)


class Voices:
    """The voices of clients."""

    def __init__(
        self,
        folder: ServingFolder,
        shelf: Shelf[ServedVoice],
        metrics: ServingMetrics,
        limits: SpeechSettings,
    ) -> None:
        self.shelf = shelf
        self.limits = limits
        self._folder = folder
        self._metrics = metrics
        count = len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(
            count, thread_name_prefix="voice", initializer=_step_back
        )
        self._lock = threading.Lock()
        self._speaking: Counter[str] = Counter()

    async def speak(
        self,
        client: str,
        served: ServedVoice,
        text: str,
        *,
        own: bool,
        wanted: SoundFormat,
        speed: float,
    ) -> Speech:
        """Begin to say a text in a client's own voice, or in everybody's.

        Raises:
            SpeechTextError: If the text cannot be said.
            SoundFormatError: If the sound cannot be encoded so.
            TooManySpeechesError: If the client, or all together, have too many texts said.
            GraphError: If onnxruntime fails at the first step.
            ValueError: As of ``voice_of``.
        """
        loop = asyncio.get_running_loop()
        self._take_place(client)
        closed = threading.Event()

        def close() -> None:
            if not closed.is_set():
                closed.set()
                self._give_back(client)

        try:
            voice = await loop.run_in_executor(
                self._threads, lambda: voice_of(self._folder, served, client if own else None)
            )
            rate_hz = voice.sample_rate_hz
            encoder = SoundEncoder(rate_hz, wanted)
            pieces = await loop.run_in_executor(
                self._threads, lambda: voice.stream(text, speed=speed)
            )
            speech = Speech(
                pieces,
                encoder,
                threads=self._threads,
                said=lambda samples: self._metrics.spoken_seconds.inc(samples / rate_hz),
                close=close,
            )
            await speech.begin()
        except BaseException:
            close()
            raise
        return speech

    def shut_down(self) -> None:
        """Wait for the pieces under way, and make no more."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _take_place(self, client: str) -> None:
        with self._lock:
            if self._speaking[client] >= self.limits.at_once_of_one:
                raise TooManySpeechesError(is_own=True)
            if self._speaking.total() >= self.limits.at_once:
                raise TooManySpeechesError(is_own=False)
            self._speaking[client] += 1
            self._metrics.speeches.set(self._speaking.total())

    def _give_back(self, client: str) -> None:
        with self._lock:
            self._speaking[client] -= 1
            if not self._speaking[client]:
                del self._speaking[client]
            self._metrics.speeches.set(self._speaking.total())


def _step_back() -> None:
    """Let this thread have a quarter of a core that another of the server wants too."""
    # Linux knows a priority of every thread; elsewhere it would be the whole server's.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        present = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(present + _STEPS_BACK, _LAST_PLACE))
