"""Readers of a person's own files and of data sets."""

import gzip
import io
from pathlib import Path

import msgspec
import numpy as np

from edge_client.child.own_examples import read_images
from edge_client.datasets.images.cifar import load_cifar10
from edge_client.datasets.images.plain_pickle import read_plain_pickle
from edge_client.datasets.reading import read_rows, read_word_lines
from edge_client.datasets.sound_file import SoundFile
from edge_client.datasets.text.irc_logs import read_log
from edge_client.datasets.text.sms_xml import read_messages
from edge_client.datasets.text_set import DatasetError
from edge_client.owner.typed_text import LocalText, TextSettings
from tests.edge_client.datasets.python2_pickle import python2_pickle
from tests.fuzz.hostile import zipped
from tests.fuzz.target import Prepared, Target, of_file

_XML = (
    b"<smsCorpus><message><text>hello</text><source><userProfile><userID>1</userID></userProfile>"
    b'</source><messageProfile time="2010"/></message></smsCorpus>'
)


class _Row(msgspec.Struct):
    user: str
    text: str


def _typed(path: Path) -> None:
    LocalText(path, TextSettings(largest_texts=3)).read(now=0.0)


def _rows(path: Path) -> None:
    list(read_rows(path, _Row))


def _sound(folder: Path) -> Prepared:
    import soundfile

    seeds = []
    for container in ("WAV", "FLAC", "NIST"):
        written = io.BytesIO()
        soundfile.write(written, np.zeros(800), 16_000, format=container, subtype="PCM_16")
        seeds.append(written.getvalue())
    return of_file(lambda path: SoundFile(path).read(), *seeds)(folder)


def _images(folder: Path) -> Prepared:
    packed = io.BytesIO()
    np.savez(packed, pixels=np.zeros((2, 3, 3, 1), np.uint8), labels=np.arange(2))
    return of_file(read_images, packed.getvalue(), name="own.npz")(folder)


def _cifar(folder: Path) -> Prepared:
    names = [b"class %d" % number for number in range(10)]
    batch = python2_pickle({b"data": np.zeros((1, 3072), np.uint8), b"labels": [3]})
    (folder / "batches.meta").write_bytes(python2_pickle({b"label_names": names}))
    for number in range(1, 6):
        (folder / f"data_batch_{number}").write_bytes(batch)
    return of_file(lambda path: load_cifar10(path.parent), batch, name="test_batch")(folder)


_ROW = b'{"user":"a","text":"hello there"}\n'
_OURS = (DatasetError,)

OWN_DATA = (
    Target("typed-text", _OURS, of_file(_typed, b'{"text":"hello","time":1}\n'), ("json", "text")),
    Target("rows", _OURS, of_file(_rows, _ROW, name="a.jsonl"), ("json", "text")),
    Target("rows-packed", _OURS, of_file(_rows, gzip.compress(_ROW), name="a.jsonl.gz"), ("gzip",)),
    Target("word-lines", _OURS, of_file(read_word_lines, b"a line of words\n"), ("text",)),
    Target("messages", _OURS, of_file(read_messages, _XML, name="a.xml"), ("xml", "text")),
    Target(
        "messages-packed",
        _OURS,
        of_file(read_messages, zipped({"a.xml": _XML}), name="a.zip"),
        ("zip",),
    ),
    Target(
        "irc", _OURS, of_file(lambda path: list(read_log(path)), b"[12:00] <ada> hi\n"), ("text",)
    ),
    Target(
        "pickle", _OURS, of_file(read_plain_pickle, python2_pickle({b"labels": [1]})), ("pickle",)
    ),
    Target("cifar", _OURS, _cifar, ("pickle",)),
    Target("images", _OURS, _images, ("npz", "zip")),
    Target("sound", _OURS, _sound, ("sound",)),
)
