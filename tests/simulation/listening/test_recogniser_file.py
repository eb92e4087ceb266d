from pathlib import Path

import msgspec
import pytest
import torch

from models.listening.recogniser import RecogniserSettings, SpeechRecogniser
from models.vector.tensor_file import encode_tensors
from simulation.listening.recogniser_file import (
    RecogniserFileError,
    load_recogniser,
    save_recogniser,
)

SETTINGS = RecogniserSettings(mel_count=8, channels=6, hidden_size=5)


@pytest.fixture
def recogniser() -> SpeechRecogniser:
    made = SpeechRecogniser(SETTINGS)
    made.initialise(torch.Generator().manual_seed(1))
    return made.eval()


def test_what_is_read_hears_what_was_kept(tmp_path: Path, recogniser: SpeechRecogniser) -> None:
    path = tmp_path / "new" / "recogniser.safetensors"
    mel = torch.randn(8, 50, generator=torch.Generator().manual_seed(2))

    save_recogniser(path, recogniser, corpus="ab12")
    again = load_recogniser(path, corpus="ab12")

    assert again.settings == SETTINGS
    assert again.read(mel) == recogniser.read(mel) != ""
    kept = again.state_dict()
    assert all(torch.equal(kept[name], own) for name, own in recogniser.state_dict().items())


def test_one_of_other_clips_is_refused(tmp_path: Path, recogniser: SpeechRecogniser) -> None:
    path = tmp_path / "recogniser.safetensors"
    save_recogniser(path, recogniser, corpus="ab12")

    with pytest.raises(RecogniserFileError, match=r"other clips.*--train-recogniser"):
        load_recogniser(path, corpus="cd34")


def test_damage_and_other_files_are_refused(tmp_path: Path, recogniser: SpeechRecogniser) -> None:
    path = tmp_path / "recogniser.safetensors"
    save_recogniser(path, recogniser, corpus="ab12")
    cut, empty, other = (tmp_path / name for name in ("cut", "empty", "other"))
    cut.write_bytes(path.read_bytes()[:-5])
    empty.write_bytes(b"")
    described = {"settings": msgspec.json.encode(SETTINGS).decode(), "corpus": "ab12"}
    other.write_bytes(encode_tensors({"a": torch.zeros(3).numpy()}, described))

    for bad, message in (
        (cut, "no recogniser"),
        (empty, "no recogniser"),
        (other, "other tensors"),
    ):
        with pytest.raises(RecogniserFileError, match=message):
            load_recogniser(bad, corpus="ab12")
