"""What a device trains on and scores on, as each task wants it."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from edge_client.child.own_examples import OwnExamples, examples_reader, read_images
from edge_client.datasets.text_set import DatasetError
from edge_client.owner.typed_text import TextSettings
from models.plan.plan import Plan, PlanError
from models.settings.character import CharLstmSettings
from models.settings.image import VitSettings
from models.settings.model import ModelSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.tasks.image_classification import LabelledImages
from models.tasks.rows import Rows
from models.tasks.speech_examples import SpeechExamples
from models.text.alphabet import ALPHABET
from tests.edge_client.stand_ins import shipped_plan

CHARACTERS = CharLstmSettings(hidden_size=2)
IMAGES = VitSettings(class_count=3)
PAIRS = Seq2SeqSettings(symbol_count=5)


def plan_for(task: str, model: ModelSettings) -> Plan:
    return msgspec.structs.replace(shipped_plan(), task=task, model=model, vocabulary=None)


def read(plan: Plan, data: Path, limits: TextSettings | None = None) -> OwnExamples:
    return examples_reader(plan, data)(data, limits or TextSettings(), 0.0)


def characters(examples: Tensor | LabelledImages | SpeechExamples | Rows) -> str:
    assert isinstance(examples, Tensor)
    assert examples.dtype is torch.int64
    return "".join(ALPHABET[number] for number in examples.tolist())


def write_images(path: Path, count: int) -> Path:
    pixels = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1).repeat(4, axis=1)
    np.savez(path, pixels=pixels, labels=np.arange(count) % 3)
    return path


def test_words_are_read_by_the_plans_list(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the to\n" * 9 + "and the to\n")

    own = read(shipped_plan(), path)

    # Nine texts of two words and an <eos> less one that is held out with the tenth.
    assert len(own.training()) == 24
    assert len(own.held_out()) == 7


def test_letters_of_what_is_private_are_cut_unless_the_owner_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("Call Dr. Jones on 5551234 or ann@example.org now")
    plan = plan_for("next_character", CHARACTERS)

    kept = read(plan, path, TextSettings(keep=("names", "numbers")))

    assert characters(read(plan, path).training()) == "Call Dr on or now"
    assert characters(kept.training()) == "Call Dr. Jones on 5551234 or now"


def test_characters_need_no_list_and_the_newest_fifth_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{letter}  z\n" for letter in "abcdefghij"))

    own = read(plan_for("next_character", CHARACTERS), path)

    assert characters(own.training()) == " ".join(f"{letter} z" for letter in "abcdefgh")
    assert characters(own.held_out()) == "i z j z"


def test_characters_that_were_trained_on_go_where_the_owner_says_so(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    path.write_text("".join(f'{{"text": "text {number}"}}\n' for number in range(10)))

    read(
        plan_for("next_character", CHARACTERS), path, TextSettings(delete_after_use=True)
    ).delete_trained()

    assert path.read_text() == '{"text": "text 8"}\n{"text": "text 9"}\n'


def test_little_text_is_too_little_to_score(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a\n")

    own = read(plan_for("next_character", CHARACTERS), path)

    with pytest.raises(DatasetError, match="at least 2 characters to train on, got 1"):
        own.training()
    with pytest.raises(DatasetError, match="at least 2 characters to score on, got 0"):
        own.held_out()


def test_images_are_trained_on_in_their_order_and_the_newest_held_out(tmp_path: Path) -> None:
    own = read(plan_for("image_classification", IMAGES), write_images(tmp_path / "own.npz", 20))

    train, held_out = own.training(), own.held_out()

    assert isinstance(train, LabelledImages)
    assert isinstance(held_out, LabelledImages)
    assert train.pixels[:, 0, 0, 0].tolist() == list(range(16))
    assert held_out.pixels[:, 0, 0, 0].tolist() == [16, 17, 18, 19]
    assert held_out.labels.tolist() == [1, 2, 0, 1]
    own.delete_trained()
    assert len(read_images(tmp_path / "own.npz")) == 20


def test_few_images_are_all_trained_on_and_none_is_refused(tmp_path: Path) -> None:
    plan = plan_for("image_classification", IMAGES)

    assert len(read(plan, write_images(tmp_path / "one.npz", 1)).training()) == 1
    with pytest.raises(DatasetError, match="at least 1 to score on, got 0"):
        read(plan, tmp_path / "one.npz").held_out()
    with pytest.raises(DatasetError, match="at least 1 to train on, got 0"):
        read(plan, write_images(tmp_path / "none.npz", 0)).training()


def test_a_file_that_holds_no_images_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with pytest.raises(DatasetError, match=r"own\.npz cannot be read"):
        read_images(path)

    path.write_bytes(b"no archive")
    with pytest.raises(DatasetError, match=r"is no \.npz file of images"):
        read_images(path)

    write_images(path, 9)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DatasetError, match=r"is no \.npz file of images"):
        read_images(path)

    np.savez(path, pixels=np.zeros((1, 2, 2, 1), np.uint8))
    with pytest.raises(DatasetError, match="must hold pixels and labels"):
        read_images(path)

    np.savez(path, pixels=np.zeros((1, 2, 2)), labels=[1])
    with pytest.raises(DatasetError, match=r"must be uint8 .* got float64 of shape \(1, 2, 2\)"):
        read_images(path)

    np.savez(path, pixels=np.zeros((1, 2, 2, 1), np.uint8), labels=[1, 2])
    with pytest.raises(DatasetError, match="must be 1 whole numbers"):
        read_images(path)

    np.savez(path, pixels=np.array([path], dtype=object), labels=[1])
    with pytest.raises(DatasetError, match=r"is no \.npz file of images"):
        read_images(path)


def test_a_file_of_images_with_a_flipped_bit_is_refused_or_reads_as_before(tmp_path: Path) -> None:
    path = write_images(tmp_path / "own.npz", 2)
    whole, right = path.read_bytes(), read_images(path)
    refused = 0

    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :])
        try:
            assert torch.equal(read_images(path).pixels, right.pixels)
        except DatasetError as error:
            assert str(path) in str(error)
            refused += 1

    assert refused > len(whole) // 2


def test_a_task_without_examples_on_devices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match='task "sequence" is not one that this device has'):
        examples_reader(plan_for("sequence", PAIRS), tmp_path)
