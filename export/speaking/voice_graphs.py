"""Run the graphs of a voice: onnxruntime and numpy, no torch (`export.faces.speech`).

The state that a step leaves to the next one stays in onnxruntime's own memory: as numpy arrays the
keys and values of all steps so far would be copied twice a step.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from export.faces.speech import (
    CHARACTERS,
    CONTEXT_FRAMES,
    DECODER_FILE,
    ENCODER_FILE,
    FRAME,
    FRAMES,
    KEPT,
    KEYS,
    LOG_MELS,
    MASK,
    MEMORY_KEYS,
    MEMORY_VALUES,
    MIDDLES,
    POSTNET_FILE,
    SOUND,
    STOP,
    VALUES,
    VOICE_FILES,
)
from export.faces.words import NEXT, PERSONAL
from export.runtime.word_graph import (
    GraphError,
    PersonalInputs,
    check_personal,
    load_session,
    no_person,
    run_on_values,
    run_session,
    shapes_of,
)

if TYPE_CHECKING:
    import onnxruntime

Held = Mapping[str, "onnxruntime.OrtValue"]
"""Values in onnxruntime's memory, by name."""


@dataclass(frozen=True)
class Made:
    """The outcome of one step.

    Attributes:
        frames: Normalised log-mels, float32, shape ``(batch, frames of a step, mel)``.
        stop: Logits that they are the last, float32, shape ``(batch,)``.
        past: The state to pass to the step after it.
    """

    frames: NDArray[np.float32]
    stop: NDArray[np.float32]
    past: Held


class VoiceGraphs:
    """The loaded graphs of one voice; safe to share between threads.

    ``personal_shapes``: shape of each tensor that is a person's own, by input name.
    """

    def __init__(self, graphs: Mapping[str, bytes], *, thread_count: int = 1) -> None:
        """Load encoder, decoder and post-net, ONNX bytes by file name.

        Raise GraphError if onnxruntime is missing, or the bytes are no such graphs.
        """
        self._sessions = {file: load_session(graphs[file], thread_count) for file in VOICE_FILES}
        inputs = {file: shapes_of(session.get_inputs()) for file, session in self._sessions.items()}
        found = {file: shapes_of(session.get_outputs()) for file, session in self._sessions.items()}
        self._memory = [MASK, *sorted(name for name in found[ENCODER_FILE] if name != MASK)]
        taken = inputs[DECODER_FILE]
        self._past = [name for name in taken if name.startswith((KEYS, VALUES))]
        _check_face(inputs, found, memory=self._memory, past=self._past)
        self.mel_count = int(found[DECODER_FILE][FRAMES][2])
        self._is_fed = FRAME in taken
        self.prenet_size = int(taken[KEPT][2]) if self._is_fed else 0
        self._past_shapes = {name: taken[name] for name in self._past}
        own = {
            file: {name: shape for name, shape in of_file.items() if name.startswith(PERSONAL)}
            for file, of_file in inputs.items()
        }
        self._files_of = {name: file for file, names in own.items() for name in names}
        self.personal_shapes: Mapping[str, tuple[int, ...]] = {
            name: shape for names in own.values() for name, shape in names.items()
        }
        self._personal: dict[str, Held] | None = None
        if not self.personal_shapes:
            self._personal = {file: {} for file in VOICE_FILES}

    def for_person(self, personal: PersonalInputs) -> "VoiceGraphs":
        """Return this voice with one person's tensors; the sessions are shared.

        Raise GraphError if a tensor is missing, foreign, or of another shape or dtype.
        """
        check_personal(personal, self.personal_shapes)
        own = copy.copy(self)
        own._personal = {
            file: {
                name: _value(tensor)
                for name, tensor in personal.items()
                if self._files_of[name] == file
            }
            for file in VOICE_FILES
        }
        return own

    def read(self, characters: NDArray[np.int64]) -> Held:
        """Read texts once and return what every step looks at.

        ``characters``: numbers of the alphabet, int64, shape ``(batch, text)``, padded with 0.
        Raise
        GraphError if onnxruntime fails, or the voice needs a person's tensors and has none.
        """
        return self._run(ENCODER_FILE, self._memory, {CHARACTERS: _value(characters)})

    def fresh_past(self, batch_size: int = 1) -> Held:
        """Return what the first step takes of those before."""
        return {
            name: _value(np.zeros((batch_size, shape[1], 0, shape[3]), dtype=np.float32))
            for name, shape in self._past_shapes.items()
        }

    def step(
        self,
        memory: Held,
        past: Held,
        frame: NDArray[np.float32],
        kept: NDArray[np.float32],
    ) -> Made:
        """Take one step.

        Args:
            memory: From ``read``.
            past: From the step before, or ``fresh_past``.
            frame: Last frame of the step before, normalised, zeros at first, ``(batch, mel)``;
                a voice with an aligner is fed none.
            kept: The factors of the pre-net's dropouts, shape ``(2, batch, prenet_size)``.

        Raises:
            GraphError: If onnxruntime fails, as after the longest number of steps.
        """
        fed = {FRAME: _value(frame), KEPT: _value(kept)} if self._is_fed else {}
        feeds = {**memory, **past, **fed}
        names = [FRAMES, STOP, *(NEXT + name for name in self._past)]
        found = self._run(DECODER_FILE, names, feeds)
        left = {name: found[NEXT + name] for name in self._past}
        return Made(found[FRAMES].numpy(), found[STOP].numpy(), left)

    def finish(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return log-mels, ``(batch, frames, mel)``, of normalised frames; errors as ``read``."""
        found = self._run(POSTNET_FILE, [LOG_MELS], {FRAMES: _value(frames)})
        made: NDArray[np.float32] = found[LOG_MELS].numpy()
        return made

    def _run(self, file: str, names: list[str], feeds: Held) -> dict[str, Any]:
        if self._personal is None:
            raise no_person(self.personal_shapes)
        found = run_on_values(self._sessions[file], names, {**feeds, **self._personal[file]})
        return dict(zip(names, found, strict=True))


class VocoderRunner:
    """A loaded vocoder; safe to share between threads.

    ``context_frames``: how many frames to either side influence the sound at a frame.
    """

    def __init__(self, graph: bytes, *, thread_count: int = 1) -> None:
        """Load the graph; GraphError if onnxruntime is missing, or the bytes are no such graph."""
        self._session = load_session(graph, thread_count)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        names = [item.name for item in (*inputs, *outputs)]
        context = self._session.get_modelmeta().custom_metadata_map.get(CONTEXT_FRAMES, "")
        if names != [LOG_MELS, SOUND] or not context.isdecimal():
            raise GraphError(
                f"a vocoder's graph must take {LOG_MELS} and give {SOUND}, and say "
                f"{CONTEXT_FRAMES}, got {names} and {context!r}"
            )
        self.context_frames = int(context)

    def sound(self, log_mels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return sound, float32, ``(batch, samples)``, of log-mels, ``(batch, frames, mel)``.

        Raise GraphError if onnxruntime fails, as with another number of channels.
        """
        found: NDArray[np.float32] = run_session(self._session, [SOUND], {LOG_MELS: log_mels})[0]
        return found


# Any: extents of axes.
def _check_face(
    inputs: Mapping[str, Mapping[str, tuple[Any, ...]]],
    outputs: Mapping[str, Mapping[str, tuple[Any, ...]]],
    *,
    memory: list[str],
    past: list[str],
) -> None:
    """Check that the graphs take and give what those of one voice do."""
    fed = () if MIDDLES in memory else (FRAME, KEPT)
    expected = {
        ENCODER_FILE: ({CHARACTERS}, set(memory)),
        DECODER_FILE: (
            {*fed, *memory, *past},
            {FRAMES, STOP, *(NEXT + name for name in past)},
        ),
        POSTNET_FILE: ({FRAMES}, {LOG_MELS}),
    }
    for file, (taken, given) in expected.items():
        found = {name for name in inputs[file] if not name.startswith(PERSONAL)}
        if found != taken or set(outputs[file]) != given or not past:
            raise GraphError(
                f"{file} must take {sorted(taken)} and give {sorted(given)}, got {sorted(found)} "
                f"and {sorted(outputs[file])}"
            )
    known = [name for name in memory if not name.startswith((MEMORY_KEYS, MEMORY_VALUES))]
    if known not in ([MASK], [MASK, MIDDLES]):
        raise GraphError(f"{ENCODER_FILE} must give keys and values, got {known}")


# Any: floats or whole numbers.
def _value(array: NDArray[Any]) -> "onnxruntime.OrtValue":
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
