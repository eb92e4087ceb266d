"""Let exported voices speak beside the trained one, all through the same vocoder.

So the difference between two bundles' rows is the voice's alone, such as the cost of 8 bits.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from export.bundles.keyboard_bundle import load_speech_bundle
from export.speaking.voice import Voice as ExportedVoice
from export.speaking.voice import open_voice
from models.settings.audio import MelSettings
from simulation.listening.corpus import Real
from simulation.listening.voices import Kind, Utterance

_SEED = 1
_LONGEST = 2


class UnsuitableBundleError(ValueError):
    """Raised when a bundle holds no voice that can be listened to here."""


@dataclass(frozen=True)
class BundleVoice:
    """A voice that speaks with the graphs of a bundle, as a server or a device does."""

    name: str
    voice: ExportedVoice
    kind: Kind = "voice"

    def say(self, real: Real) -> Utterance:
        """Say the text of a clip; it is cut off as a run's own voices are."""
        longest_s = _LONGEST * len(real.sound) / self.voice.sample_rate_hz
        said = list(self.voice.speak(real.clip.text, seed=_SEED, longest_s=longest_s))
        mel = np.concatenate([sentence.log_mels for sentence in said])
        return Utterance(
            torch.from_numpy(mel).t(), has_ended=all(sentence.has_ended for sentence in said)
        )


def open_bundle(source: Path, mel: MelSettings) -> BundleVoice:
    """Return the voice of a speech bundle, a folder or ``.zip``, whose own vocoder is not used.

    Raises:
        BundleError: If it is no speech bundle, or not what its manifest says.
        UnsuitableBundleError: If its spectrograms are not the clips' own (``mel``), or a part of it
            is each person's own.
    """
    bundle = load_speech_bundle(source)
    if bundle.manifest.model.mel != mel:
        raise UnsuitableBundleError(
            f"the voice in {source} makes other spectrograms: its model.mel must be {mel}, got "
            f"{bundle.manifest.model.mel}"
        )
    if bundle.manifest.personal is not None:
        raise UnsuitableBundleError(
            f"the voice in {source} takes a person's tensors; listen to a whole voice, made with "
            "`sotto-export personal --whole`"
        )
    return BundleVoice(f"{source.name}, {bundle.manifest.precision}", open_voice(bundle))
