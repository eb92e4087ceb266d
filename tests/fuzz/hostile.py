"""Inputs made to cost much or to end in an error that nobody thought of, a few for each format.

They are what readers did not withstand before sizes were bounded: nesting, bytes that are not
UTF-8, numbers of thousands of digits, headers that ask for more memory than their file has.
"""

import base64
import functools
import gzip
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import onnx

from export.people.adapter import encode_adapter
from tests.models.plan.mutated_plans import honest_plans

MIB = 1 << 20
_COUNTS = rb"\w*(?:layer|block|stage)_count"
_SIZES = rb"\w*(?:size|channels|count)"


# A store of which SQLite says that there is not enough memory, compressed.
_DAMAGED_STORE = (
    "eNoLDvTJLElVSMsvyk0sUTBmYGJgZGRwUFBgYAAyGRiYGRAAxGdBcH0YAhkYg1E0YwImBr1kRl4Qg9GNgfEckBje"
    "oJGViV1cUpKxMbUkMSknNSc1JT21CEIyOwe5Ooa4KoQ4Ovm4KkDEFDSKUwtLU/OSU3UUivJL81Li80pzk1KLdBRS"
    "y1LzSoCCqcn5RSmpKfG5xToKyTn5ydnxxakl8UmJQAZIqKAotSwzv7Q4vjjjPxQkGpma6SgUZ4BoTQNGNnFRUUZX"
    "sGuKSvOKQZgJxSUgEQUNIKkQ4hoRogmKLEbGOwxANAoGLfhOli4lRiZfAwNDQyMjY2MTE1NTMzNzcwtLA4PExKSk"
    "5OSUlNTUtDRecK5fwsDYxygJpAYlKGbmYGSMYeTw8WFmrlYCZxUlKyVg7kjMUdJRysvPLE6Nzy3NKcksyMlMLVKy"
    "MtIzqGVOE/4R2at08ejtxpsaW+8Isk9cIrLS/eCV5zeKX72pmmTXHiiz72hudueDopa43xP+z9kvseGR0yYbqdXL"
    "mJMOpB6LOV/MBLOUiYlYS5k2THS/5PTy7dS1mve75Y4z90Rsui7J/+c7A/vNrx5HFCM3ojlKHd1RBYwcnJwxnEBL"
    "ibVyisb7fIe0C1OMPaMEZzPXRIhu+XvNWP/JpTP3jhnzrcjfSshFAO4O8+w="
)


def _sqlite() -> Iterator[bytes]:
    yield zlib.decompress(base64.b64decode(_DAMAGED_STORE))


def _json() -> Iterator[bytes]:
    yield b"[" * MIB
    yield b"[" * (MIB // 2) + b"]" * (MIB // 2)
    yield b'{"a":' * (MIB // 5)
    yield b"[" * 200 + b"]" * 200
    yield b"[" + b"{}," * (MIB // 3) + b"{}]"
    yield b'{"run":"\xff"}'
    yield b'{"round":' + b"9" * 5000 + b"}"
    yield b'{"round":1' + b"0" * 400 + b"}"
    yield b'{"round":1e999}'
    yield b'{"run":"\\ud800"}'
    yield b'{"a":1,"a":2}'
    yield b"[" * 40 + b'"' + b'\\"' * (MIB // 2)
    yield b"null"
    yield b" " * (MIB + 1)


def _toml() -> Iterator[bytes]:
    size = 128 << 10
    yield b"a = " + b"[" * (size - 8)
    yield b"a = " + b"{a = " * (size // 6)
    yield b"a." * (size // 2 - 8) + b"a = 1"
    yield b"[" + b"a." * (size // 2 - 8) + b"a]"
    yield b"seed = " + b"9" * 5000
    yield b"seed = 0x" + b"f" * 5000
    yield b'a = "' + b'\\"' * (size // 2 - 8)
    yield b"a = \xff"
    yield b"".join(b"[a%d]\n" % number for number in range(15_000))
    yield b"a = 1\n" * MIB


def _text() -> Iterator[bytes]:
    yield b"\xff\xfe"
    yield b"\n" * MIB
    yield b"a " * (MIB // 8)
    yield b"a" * (MIB // 4)
    yield b"word\n\0"
    yield b"\xed\xa0\x80"


def _npz(shape: str, descr: str = "'|u1'", *, content: bytes = b"", name: str = "pixels") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + content
    return zipped({f"{name}.npy": array})


def _npz_files() -> Iterator[bytes]:
    yield _npz("(1099511627776, 1)")
    yield _npz("(-1, -4)", content=b"abcd")
    yield _npz("(1,)", "'|O'", content=b"cos\nsystem\n(S'ls'\ntR.")
    yield _npz("(" + "9" * 5000 + ",)")
    yield _npz("(" * 3000)
    yield _npz("(-" * 1500 + "1" + ")" * 1500)
    single = io.BytesIO()
    np.save(single, np.zeros(3))
    yield single.getvalue()
    yield zipped({"pixels.txt": b"none"})


def _zip() -> Iterator[bytes]:
    yield _bomb("a.xml")
    yield _bomb("pixels.npy")
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", method) as archive:
            archive.writestr("a.xml", b"<smsCorpus>" * 100)
        whole = packed.getvalue()
        yield whole
        yield whole[:60] + b"\xff" * 8 + whole[68:]
    yield zipped({f"{number}": b"" for number in range(8000)})
    # The sign that a name is UTF-8, and a name that is not.
    yield zipped({"é": b""}).replace("é".encode(), b"\xff\xfe")


def _gzip() -> Iterator[bytes]:
    # An archive of many members, one after another.
    yield gzip.compress(bytes(8 * MIB), 1) * 32
    yield gzip.compress(b"\n" * (8 * MIB), 1) * 8
    yield gzip.compress(b'{"text":"a"}\n')[:-4]


def _xml() -> Iterator[bytes]:
    yield b"<smsCorpus>" + b"<a>" * (MIB // 3)
    yield b"<smsCorpus><message><text>" + b"&amp;" * (MIB // 5)
    yield b'<?xml version="1.0" encoding="utf-4"?><smsCorpus/>'
    yield b'<?xml version="1.0" encoding="shift_jis"?><smsCorpus/>'
    yield b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    yield b"<smsCorpus " + b" ".join(b'a%d="1"' % number for number in range(100_000)) + b"/>"


def _pickle() -> Iterator[bytes]:
    # A place of a thousand million; a nest that doubles; a tuple within a tuple, and so on.
    yield b"\x80\x02}r\x00\xca\x9a\x3b."
    yield b"\x80\x02}U\x06labels]q\x01" + b"(h\x01h\x01lq\x01" * 60 + b"s."
    yield b"\x80\x02" + b"(" * (MIB // 2) + b"t" * (MIB // 2) + b"."
    yield b"\x80\x02]" + b"0]" * (MIB // 2) + b"."
    yield b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"a."
    yield b"\x80\x02L" + b"9" * 5000 + b"L\n."
    yield b"cnumpy\ndtype\n(S'i4'\nI0\nI1\ntR."


def _sound() -> Iterator[bytes]:
    # STREAMINFO of FLAC with 2^36 - 1 samples, and no frame at all.
    rate, channels, bits = 16_000, 1, 16
    packed = rate << 44 | (channels - 1) << 41 | (bits - 1) << 36 | (1 << 36) - 1
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + struct.pack(">Q", packed) + bytes(16)
    yield b"fLaC\x80" + len(info).to_bytes(3, "big") + info
    # A WAV written to a pipe: its length was not known.
    for size in (0xFFFFFFFF, 0x7FFFFFF0):
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
        yield b"RIFF\xff\xff\xff\xffWAVE" + form + struct.pack("<4sI", b"data", size) + b"ab"
    yield b"NIST_1A\n   1024\nsample_count -i 99999999999\nsample_rate -i 16000\nend_head\n"
    yield b"RIFF\xff\xff\xff\xffWAVE" + b"abcd\0\0\0\0" * (MIB // 8)


def _pem() -> Iterator[bytes]:
    yield b"-----BEGIN CERTIFICATE-----\n" + b"A" * MIB
    yield b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    yield b"-----BEGIN CERTIFICATE-----\n\xff\xfe\n-----END CERTIFICATE-----\n"


def _der() -> Iterator[bytes]:
    yield b"0\x80" * (MIB // 2)
    yield b"0\x84\xff\xff\xff\xff"
    yield b""


def _adapter() -> Iterator[bytes]:
    tensors = {"personal.a": np.ones((3, 4), np.float32)}
    yield encode_adapter(tensors, "float32").replace(b"personal.a", b"\x93ersonal.a")


def _graph() -> Iterator[bytes]:
    # An axis, then a type, whose name is no UTF-8.
    taken = onnx.helper.make_tensor_value_info("taken", onnx.TensorProto.FLOAT, ["rows"])
    given = onnx.helper.make_tensor_value_info("given", onnx.TensorProto.FLOAT, ["rows"])
    node = onnx.helper.make_node("Identity", ["taken"], ["given"])
    graph = onnx.helper.make_graph([node], "graph", [taken], [given])
    opset = onnx.helper.make_opsetid("", 21)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    encoded = model.SerializeToString()
    yield encoded
    yield encoded.replace(b"rows", b"\x89ows")
    yield encoded.replace(b"Identity", b"\x9ddentity")


def _plan() -> Iterator[bytes]:
    # Sizes that multiply to more than any device has, each of them alone and all together.
    for plan in honest_plans():
        encoded = plan.encode()
        for names, value in ((_COUNTS, b"1000000"), (_COUNTS, b"65536"), (_SIZES, b"65536")):
            yield re.sub(rb'"(%s)":\d+' % names, rb'"\1":' + value, encoded)


def _recogniser() -> Iterator[bytes]:
    # No tensors, and settings of a network of many gigabytes.
    for width in (30_000, 1 << 40):
        described = {"settings": json.dumps({"channels": width}), "corpus": "00" * 32}
        header = json.dumps({"__metadata__": described}).encode()
        yield struct.pack("<Q", len(header)) + header


_FORMATS: dict[str, Callable[[], Iterator[bytes]]] = {
    "adapter": _adapter,
    "der": _der,
    "graph": _graph,
    "gzip": _gzip,
    "json": _json,
    "npz": _npz_files,
    "pem": _pem,
    "pickle": _pickle,
    "plan": _plan,
    "recogniser": _recogniser,
    "sound": _sound,
    "sqlite": _sqlite,
    "text": _text,
    "toml": _toml,
    "xml": _xml,
    "zip": _zip,
}


@functools.cache
def inputs(form: str) -> tuple[bytes, ...]:
    """Return the hostile inputs of a format such as ``json``."""
    return tuple(_FORMATS[form]())


def zipped(files: dict[str, bytes]) -> bytes:
    """Return an archive of stored files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _bomb(name: str) -> bytes:
    """Return an archive of a kilobyte or so a MiB, whose one member unpacks to 256 MiB."""
    piece = bytes(8 * MIB)
    packing = zlib.compressobj(1, zlib.DEFLATED, -15)
    block = packing.compress(piece) + packing.flush(zlib.Z_FULL_FLUSH)
    packed = block * 32 + packing.flush()
    checksum = 0
    for _ in range(32):
        checksum = zlib.crc32(piece, checksum)
    encoded = name.encode()
    sizes = struct.pack("<III", checksum, len(packed), 32 * len(piece))
    local = struct.pack("<4s5H", b"PK\3\4", 20, 0, 8, 0, 33) + sizes
    local += struct.pack("<HH", len(encoded), 0) + encoded + packed
    central = struct.pack("<4s6H", b"PK\1\2", 20, 20, 0, 8, 0, 33) + sizes
    central += struct.pack("<5HII", len(encoded), 0, 0, 0, 0, 0, 0) + encoded
    end = struct.pack("<4s4HIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end
