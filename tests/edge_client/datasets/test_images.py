"""Images load from every layout alike, and a file that is not what it should be is named."""

import importlib.util
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edge_client.datasets.images.image_sheets import read_sheets
from edge_client.datasets.images.plain_pickle import read_plain_pickle
from edge_client.datasets.registry import load_images
from edge_client.datasets.text_set import DatasetError
from tests.edge_client.datasets.python2_pickle import python2_pickle

DATA = Path(os.environ.get("SOTTO_DATA", Path(__file__).parents[4] / "shared" / "data"))


def rows_of(values: list[int]) -> np.ndarray:
    """Return an official row for each value: red is the value, green 1 more, blue 2 more."""
    planes = [[value + channel] * 1024 for value in values for channel in range(3)]
    return np.array(planes, dtype=np.uint8).reshape(len(values), 3072)


def write_cifar10(folder: Path) -> Path:
    """Write five training batches of two images and one test batch of one."""
    folder.mkdir()
    names = [f"class {number}".encode() for number in range(10)]
    (folder / "batches.meta").write_bytes(python2_pickle({b"label_names": names}))
    for number in range(1, 6):
        batch = {b"data": rows_of([number, 10 * number]), b"labels": [number, 0]}
        (folder / f"data_batch_{number}").write_bytes(python2_pickle(batch))
    test = {b"data": rows_of([200]), b"labels": [9]}
    (folder / "test_batch").write_bytes(python2_pickle(test))
    return folder


def test_official_batches_of_cifar10_follow_each_other(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")

    images = load_images("cifar10", tmp_path)

    assert images.train.labels.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert images.train.pixels.shape == (10, 32, 32, 3)
    assert images.train.pixels[1, 31, 0].tolist() == [10, 11, 12]
    assert images.test.pixels[0, 0, 31].tolist() == [200, 201, 202]
    assert images.test.labels.tolist() == [9]
    assert images.class_names[3] == "class 3"
    assert images.coarse is None


def test_a_pixel_of_an_official_row_stays_where_it_is(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "set")
    rows = rows_of([0])
    rows[0, 1024 + 32 * 5 + 7] = 99  # Green, row 5, column 7.
    (folder / "test_batch").write_bytes(python2_pickle({b"data": rows, b"labels": [1]}))

    pixels = load_images("cifar10", folder).test.pixels

    assert pixels[0, 5, 7].tolist() == [0, 99, 2]


def test_cifar100_has_two_levels_of_classes(tmp_path: Path) -> None:
    names = {
        b"fine_label_names": [f"fine {number}".encode() for number in range(100)],
        b"coarse_label_names": [f"coarse {number}".encode() for number in range(20)],
    }
    (tmp_path / "meta").write_bytes(python2_pickle(names))
    for file, fine, coarse in (("train", [99, 4], [19, 1]), ("test", [50], [7])):
        batch = {
            b"data": rows_of(list(range(len(fine)))),
            b"fine_labels": fine,
            b"coarse_labels": coarse,
        }
        (tmp_path / file).write_bytes(python2_pickle(batch))

    images = load_images("cifar100", tmp_path)

    assert images.train.labels.tolist() == [99, 4]
    assert images.coarse is not None
    assert images.coarse.train.tolist() == [19, 1]
    assert images.coarse.test.tolist() == [7]
    assert images.coarse.names[19] == "coarse 19"


def write_sheets(folder: Path) -> Path:
    """Write flat grey tiles: tile k of every sheet is k mod 200, which JPEG keeps."""
    folder.mkdir()
    tiles = np.arange(10_000, dtype=np.uint32) % 200
    grey = np.repeat(np.repeat(tiles.reshape(100, 100), 32, axis=0), 32, axis=1).astype(np.uint8)
    for name in (*[f"data_batch_{number}" for number in range(1, 6)], "test_batch"):
        Image.fromarray(grey).convert("RGB").save(folder / f"{name}.jpg", quality=92)
    np.savez(
        folder / "labels.npz",
        train_labels=np.arange(50_000) % 10,
        test_labels=np.arange(10_000) % 10,
        label_names=np.array([f"class {number}".encode() for number in range(10)]),
    )
    return folder


@pytest.fixture(scope="module")
def sheets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sheets(tmp_path_factory.mktemp("sheets") / "cifar10")


@pytest.mark.slow
def test_tiles_are_read_row_by_row_and_the_loss_is_told(sheets: Path) -> None:
    images = load_images("cifar10", sheets.parent)

    assert len(images.train) == 50_000
    for place in (0, 1, 99, 100, 12_345, 49_999):
        tile = images.train.pixels[place].to(torch.int64)
        assert int((tile - place % 10_000 % 200).abs().max()) <= 1
    assert images.train.labels[12_345] == 5
    assert len(images.test) == 10_000
    assert "re-encoded" in images.notes[0]


@pytest.mark.slow
def test_a_sheet_that_is_cut_short_or_missing_or_too_small_is_named(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.jpg"
    with pytest.raises(DatasetError, match=r"sheet\.jpg is missing"):
        read_sheets([sheet])

    Image.new("RGB", (64, 32)).save(sheet)
    with pytest.raises(DatasetError, match="must be 3200x3200 pixels, got 64x32"):
        read_sheets([sheet])

    Image.effect_noise((3200, 3200), 50).convert("RGB").save(sheet)
    sheet.write_bytes(sheet.read_bytes()[:-100_000])
    with pytest.raises(DatasetError, match=r"sheet\.jpg is damaged"):
        read_sheets([sheet])

    sheet.write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"sheet\.jpg is damaged"):
        read_sheets([sheet])


@pytest.mark.slow
def test_labels_are_never_unpickled_and_must_fit_the_images(sheets: Path, tmp_path: Path) -> None:
    for file in sheets.iterdir():
        (tmp_path / file.name).symlink_to(file)
    labels = tmp_path / "labels.npz"
    labels.unlink()
    names = np.array([b"a"] * 10)

    np.savez(labels, train_labels=np.array([os.system]), test_labels=[1], label_names=names)
    with pytest.raises(DatasetError, match=r"labels\.npz: train_labels must be numbers or text"):
        load_images("cifar10", tmp_path)

    np.savez(labels, train_labels=np.zeros(3, int), label_names=names)
    with pytest.raises(DatasetError, match=r"labels\.npz: it must hold .*test_labels"):
        load_images("cifar10", tmp_path)

    np.savez(labels, train_labels=np.zeros(3, int), test_labels=np.zeros(3, int), label_names=names)
    with pytest.raises(DatasetError, match="got 3 labels for 50000 images"):
        load_images("cifar10", tmp_path)

    labels.write_bytes(labels.read_bytes()[:100])
    with pytest.raises(DatasetError, match=r"labels\.npz: it is damaged"):
        load_images("cifar10", tmp_path)


class _Command:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({b"data": np.array([None, "x"], dtype=object)}, "it holds an array of object"),
        ({b"data": Path("x")}, r"it names pathlib"),
        ([1, 2], "must hold a dictionary, got list"),
    ],
)
def test_a_pickle_of_more_than_plain_values_is_refused(
    tmp_path: Path, value: object, told: str
) -> None:
    file = tmp_path / "batch"
    file.write_bytes(python2_pickle(value))

    with pytest.raises(DatasetError, match=told) as refused:
        read_plain_pickle(file)

    assert str(file) in str(refused.value)


@pytest.mark.parametrize("protocol", [2, 4])
def test_what_a_pickle_would_run_is_not_run(tmp_path: Path, protocol: int) -> None:
    file, mark = tmp_path / "batch", tmp_path / "mark"
    file.write_bytes(pickle.dumps({"data": _Command(mark)}, protocol=protocol))

    with pytest.raises(DatasetError, match=r"it names posix\.system"):
        read_plain_pickle(file)

    assert not mark.exists()


def test_a_pickle_cannot_ask_for_an_array_that_it_does_not_hold(tmp_path: Path) -> None:
    file = tmp_path / "batch"
    # numpy.ndarray called with a shape of 2^40 bytes, as a pickle may.
    file.write_bytes(b"\x80\x02cnumpy\nndarray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85\x85R.")

    with pytest.raises(DatasetError, match="no pickle of plain values and arrays"):
        read_plain_pickle(file)


def test_an_official_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "set")
    batch = folder / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:-4000])

    with pytest.raises(DatasetError, match=r"data_batch_3 is no pickle"):
        load_images("cifar10", folder)

    batch.unlink()
    with pytest.raises(DatasetError, match=r"data_batch_3 cannot be read"):
        load_images("cifar10", folder)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({b"data": rows_of([1]), b"labels": [10]}, r"must be in \[0, 10\), got 10 to 10"),
        ({b"data": rows_of([1]), b"labels": [1, 2]}, "got 2 labels for 1 images"),
        ({b"data": rows_of([1])[:, :-1], b"labels": [1]}, "must hold rows of 3072 bytes"),
        ({b"labels": [1]}, "must hold rows of 3072 bytes"),
        ({b"data": rows_of([1]), b"labels": ["a"]}, "a list of whole numbers as labels"),
    ],
)
def test_an_official_batch_that_makes_no_sense_is_refused(
    tmp_path: Path, batch: dict[bytes, object], told: str
) -> None:
    folder = write_cifar10(tmp_path / "set")
    (folder / "test_batch").write_bytes(python2_pickle(batch))

    with pytest.raises(DatasetError, match=told):
        load_images("cifar10", folder)


def test_a_set_that_is_nowhere_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cifar10 needs a path: give --data"):
        load_images("cifar10")
    with pytest.raises(DatasetError, match=r"no batches\.meta .* and no labels\.npz"):
        load_images("cifar10", tmp_path)
    with pytest.raises(DatasetError, match="must be one of digits, cifar10, cifar100, got 'mnist'"):
        load_images("mnist")


def test_the_digits_need_no_download_and_every_fifth_is_for_testing() -> None:
    images = load_images("digits")

    assert len(images.train) + len(images.test) == 1_797
    assert images.train.pixels.shape[1:] == (8, 8, 1)
    # The darkest of 17 levels is 255; a fifth of each digit's 174 to 183 images is held out.
    assert int(images.train.pixels.max()) == 255
    assert set(images.test.labels.bincount().tolist()) <= {34, 35, 36}
    assert set(images.train.labels.tolist()) == set(range(10))


@pytest.mark.parametrize(("module", "name"), [("sklearn.datasets", "digits"), ("PIL", "sheets")])
def test_a_missing_package_is_told_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, name: str
) -> None:
    assert importlib.util.find_spec(module.split(".", maxsplit=1)[0]) is not None
    monkeypatch.setitem(__import__("sys").modules, module, None)

    with pytest.raises(DatasetError, match=r"is missing; install sotto\[image\]"):
        if name == "digits":
            load_images("digits")
        else:
            read_sheets([tmp_path / "sheet.jpg"])


@pytest.mark.papers
@pytest.mark.skipif(not (DATA / "cifar100").is_dir(), reason="CIFAR is absent; set SOTTO_DATA")
def test_the_development_layout_has_the_published_counts() -> None:
    images = load_images("cifar100", DATA)

    assert images.train.labels.bincount().tolist() == [500] * 100
    assert images.test.labels.bincount().tolist() == [100] * 100
    assert images.coarse is not None
    # Five fine classes in each coarse one; "apple" is among the fruit.
    pairs = {
        *zip(images.train.labels.tolist(), images.coarse.train.tolist(), strict=True),
        *zip(images.test.labels.tolist(), images.coarse.test.tolist(), strict=True),
    }
    assert len(pairs) == 100
    fruit = images.coarse.names.index("fruit_and_vegetables")
    assert (images.class_names.index("apple"), fruit) in pairs
    # The published channel means, less what JPEG loses.
    means = images.train.pixels.double().mean((0, 1, 2)) / 255
    assert torch.allclose(means, torch.tensor([0.50708, 0.48655, 0.44092]).double(), atol=1e-3)
