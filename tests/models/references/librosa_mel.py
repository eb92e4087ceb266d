"""Write ``librosa_mel.npz``: what librosa makes of `mel_signal.reference_signal`.

Run once, in an environment of its own, since librosa is no dependency (the file was written with
Python 3.11, librosa 0.11.0 and numpy 2.4.6):

    python -m venv reference && reference/bin/pip install librosa==0.11.0
    reference/bin/python -P tests/models/references/librosa_mel.py
"""

import runpy
from pathlib import Path

import librosa
import numpy as np

HERE = Path(__file__).parent


def main() -> None:
    """Compute in float64 and keep every value of the log-mel, and the filters' sums."""
    signal = runpy.run_path(str(HERE / "mel_signal.py"))["reference_signal"]()
    mel = librosa.feature.melspectrogram(
        y=signal,
        sr=22_050,
        n_fft=1024,
        hop_length=256,
        win_length=1024,
        window="hann",
        center=True,
        pad_mode="reflect",
        power=1.0,
        n_mels=80,
        fmin=0.0,
        fmax=8000.0,
        htk=False,
        norm="slaney",
        dtype=np.float64,
    )
    filters = librosa.filters.mel(
        sr=22_050, n_fft=1024, n_mels=80, fmin=0.0, fmax=8000.0, dtype=np.float64
    )
    np.savez_compressed(
        HERE / "librosa_mel.npz",
        log_mel=np.log(np.maximum(1e-5, mel)),
        filter_sums=filters.sum(axis=1),
        filter_peaks=filters.max(axis=1),
    )


if __name__ == "__main__":
    main()
