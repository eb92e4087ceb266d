"""Readers of data sets: text, images and sound as others publish them or a person has them."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import soundfile

from edge_client.child.own_examples import read_images
from edge_client.datasets.images.cifar import load_cifar10, load_cifar100
from edge_client.datasets.images.image_sheets import read_labels, read_sheets
from edge_client.datasets.images.plain_pickle import read_plain_pickle
from edge_client.datasets.registry import CHARACTER_SETS, DATASETS, SPEECH_SETS
from edge_client.datasets.sound_file import SoundFile
from edge_client.datasets.text_set import DatasetError
from tests.edge_client.datasets.python2_pickle import python2_pickle
from tests.fuzz.hostile import zipped
from tests.fuzz.saved import gzipped, nist, saved_arrays, wav
from tests.fuzz.target import Prepared, Target, in_new_folders, of_file

_REFUSED = (DatasetError,)
_SHEET_SIDE = 3200
_JSONL = b'{"user":"ada","text":"good morning to you","sent":"2011.01.06 22:10"}\n' * 12
_CHAT = b'{"split":"train","user":"ada","text":"hello there","day":"2004-12-25"}\n' * 12
_ROLES = b'{"user":"HAMLET","speeches":[[1,["To be, or not to be"]],[3,["Words, words"]]]}\n' * 3
_LEAF = b'{"users":["a"],"user_data":{"a":{"raw":"To be, or not to be","x":["ab"],"y":["c"]}}}'
_XML = (
    b'<?xml version="1.0" encoding="utf-8"?>\n<smsCorpus>'
    + b'<message id="1"><text>good morning</text><source><srcNumber>51</srcNumber></source>'
    b'<messageProfile time="2011.01.06 22:10"/></message>' * 12 + b"</smsCorpus>"
)
_LOG = b"[12:01] <ada> good morning\n[12:02] <ben> hello\n" * 12


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    yield from _texts()
    yield from _images()
    yield from _sounds()


def _texts() -> Iterator[Target]:
    yield _text("jsonl", "messages.jsonl", _JSONL, "json", "text")
    yield _text("jsonl", "messages.jsonl.gz", gzipped(_JSONL), "gzip")
    yield _text("sms", "messages_en.jsonl", _JSONL, "json")
    yield _text("sms", "smsCorpus_en_2015.xml", _XML, "xml")
    packed = zipped({"smsCorpus_en.xml": _XML})
    yield _text("sms", "smsCorpus_en_2015.zip", packed, "zip")
    yield _text("irc", "messages.jsonl", _CHAT, "json")
    yield _text("irc", "2004-12-25.txt", _LOG, "text")
    yield _text("folder", "ada.txt", b"good morning to you\n" * 12, "text")
    words = b"no it was n't black monday\n" * 12
    for name, first, rest in (
        ("ptb", "ptb.train.txt", ("ptb.valid.txt", "ptb.test.txt")),
        ("wikitext2", "wiki.train.tokens", ("wiki.valid.tokens", "wiki.test.tokens")),
    ):
        yield _set(f"{name}/{first}", DATASETS[name], first, words, dict.fromkeys(rest, words))
    comments = b"good morning [NAME]\t1\tabc\n" * 12
    others = dict.fromkeys(("dev.tsv", "test.tsv"), comments)
    yield _set("reddit/train.tsv", DATASETS["reddit"], "train.tsv", comments, others, "text")
    for name, content in (("roles.jsonl", _ROLES), ("all_data.json", _LEAF)):
        load = CHARACTER_SETS["shakespeare"]
        yield _set(f"shakespeare/{name}", load, name, content, {}, "json", "text")


def _images() -> Iterator[Target]:
    pixels = np.zeros((4, 2, 2, 1), np.uint8)
    labels = np.arange(4)
    images = saved_arrays(pixels=pixels, labels=labels)
    yield Target("datasets/own-images", _REFUSED, of_file(read_images, images), ("npz", "zip"))
    yield Target(
        "datasets/image-labels",
        _REFUSED,
        of_file(lambda path: read_labels(path, "labels"), images),
        ("npz", "zip"),
    )
    yield Target("datasets/image-sheet", _REFUSED, _sheets)
    batch = python2_pickle({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]})
    meta = python2_pickle({b"label_names": [b"%d" % number for number in range(10)]})
    pickles = of_file(read_plain_pickle, batch, meta)
    yield Target("datasets/pickle", _REFUSED, pickles, ("pickle",))
    files = dict.fromkeys([f"data_batch_{number}" for number in range(2, 6)], batch)
    files |= {"batches.meta": meta, "test_batch": batch}
    yield _set("cifar10/data_batch_1", load_cifar10, "data_batch_1", batch, files, "pickle")
    fine = {b"fine_label_names": [b"%d" % number for number in range(100)]}
    coarse = {b"coarse_label_names": [b"%d" % number for number in range(20)]}
    batch = python2_pickle(
        {
            b"data": np.zeros((2, 3072), np.uint8),
            b"fine_labels": [1, 2],
            b"coarse_labels": [1, 2],
        }
    )
    files = {"train": batch, "test": batch}
    yield _set(
        "cifar100/meta", load_cifar100, "meta", python2_pickle(fine | coarse), files, "pickle"
    )


def _sounds() -> Iterator[Target]:
    sound = np.zeros(2000)
    flac = io.BytesIO()
    soundfile.write(flac, sound, 16_000, format="FLAC")
    seeds = (wav(), wav(50, channels=2, rate=8000), flac.getvalue(), nist())
    yield Target("datasets/sound", _REFUSED, of_file(_sound, *seeds), ("sound",))
    named = zipped({"recordings/7_ada_0.wav": wav(2000, rate=8000)})
    fsdd = SPEECH_SETS["fsdd"]
    yield Target("datasets/fsdd", _REFUSED, of_file(fsdd, named, name="fsdd.zip"), ("zip",))
    lines = b"LJ001-0001|Printing, in 1849|Printing, in eighteen\nLJ001-0002|being modern\n"
    for name in ("ljspeech", "kathleen"):
        yield _speech(name, "metadata.csv", lines, "text")
    yield _speech("an4", "metadata.csv", b"ada/an1|YES|ada\n", "text")
    ids = b"an4_clstk/ada/an1\nan4_clstk/ben/an2\n"
    spoken = b"<s> YES </s> (an1)\nNO (an2)\n"
    ids_name, spoken_name = "etc/an4_train.fileids", "etc/an4_train.transcription"
    an4 = SPEECH_SETS["an4"]
    yield _set(f"an4/{ids_name}", an4, ids_name, ids, {spoken_name: spoken}, "text")
    yield _set(f"an4/{spoken_name}", an4, spoken_name, spoken, {ids_name: ids}, "text")
    yield _set(
        "recordings/ada.txt",
        SPEECH_SETS["recordings"],
        "ada/one.txt",
        b"good morning\n",
        {"ada/one.wav": wav()},
        "text",
    )


def _text(name: str, file: str, content: bytes, *hostile: str) -> Target:
    return _set(f"{name}/{file}", DATASETS[name], file, content, {}, *hostile)


def _speech(name: str, file: str, content: bytes, *hostile: str) -> Target:
    return _set(f"{name}/{file}", SPEECH_SETS[name], file, content, {}, *hostile)


def _set(
    name: str,
    load: Callable[[Path], object],
    file: str,
    content: bytes,
    others: dict[str, bytes],
    *hostile: str,
) -> Target:
    """Return the target of one file of a set, whose other files are as they should be."""

    def read(folder: Path, changed: bytes) -> object:
        for path, whole in {**others, file: changed}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(whole)
        return load(folder)

    return Target(
        f"datasets/{name.split('/', maxsplit=1)[0]}/{Path(file).name}",
        _REFUSED,
        lambda folder: Prepared(in_new_folders(read, folder), [content]),
        hostile,
    )


def _sound(path: Path) -> None:
    source = SoundFile(path)
    source.stated_s()
    source.read()


def _sheets(folder: Path) -> Prepared:
    from PIL import Image

    # As large as a sheet must be, in one colour: a few kilobytes.
    packed = io.BytesIO()
    Image.new("RGB", (_SHEET_SIDE, _SHEET_SIDE)).save(packed, "PNG")
    path = folder / "sheet.jpg"

    def read(content: bytes) -> object:
        path.write_bytes(content)
        return read_sheets([path])

    return Prepared(read, [packed.getvalue()])
