"""The page's files belong together, and reach nobody else."""

import gzip
import json
import re
from pathlib import Path

import pytest

from export.page.onnxruntime_web import PageError, fetch, runtime_files
from export.page.page_files import INDEX, POLICY, SERVICE_WORKER, PageFile, Source, page_files
from export.serve.doors.page import SERVED_FROM

RUNTIME = {"a.wasm": b"large", "a.wasm.gz": gzip.compress(b"large"), "ort.wasm.min.mjs": b"ort"}


def test_no_file_of_the_page_names_another_host() -> None:
    files = page_files(SERVED_FROM, {})

    for name, file in files.items():
        text = file.content.decode().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"\w://\w", text), name
        assert not re.search(r"""(?:src|href|url\(|import\()\s*=?\s*["']?//""", text), name
    assert POLICY in files[INDEX].content.decode()
    assert "unsafe-inline" not in POLICY
    assert "'unsafe-eval'" not in POLICY


def test_every_module_that_is_imported_is_there() -> None:
    files = page_files(SERVED_FROM, {})

    imported = [
        (name, found)
        for name, file in files.items()
        for found in re.findall(r'from "\./(.+?)"', file.content.decode())
    ]

    assert len(imported) > 10
    for name, found in imported:
        assert f"page/{found}" in files, f"{name} imports {found}"
    used = re.findall(r'(?:src|href)="(.+?)"', files[INDEX].content.decode())
    assert len(used) == 3
    assert set(used) <= files.keys()


def test_the_service_worker_keeps_every_file_and_changes_with_each() -> None:
    before = page_files(SERVED_FROM, RUNTIME)
    after = page_files(SERVED_FROM, RUNTIME | {"ort.wasm.min.mjs": b"other"})

    kept = json.loads(re.findall(r"const FILES = (\[.*\]);", _text(before[SERVICE_WORKER]))[0])
    versions = [
        re.findall(r'const VERSION = "(.*)";', _text(files[SERVICE_WORKER]))
        for files in (before, after)
    ]

    assert set(kept) == (before.keys() - {INDEX, SERVICE_WORKER}) | {"./"}
    assert versions[0] != versions[1]


def test_the_page_knows_where_it_is_and_whether_it_can_run_a_model() -> None:
    device = Source(description="keyboard/keyboard.json", files="keyboard", needs_token=False)

    without = _text(page_files(SERVED_FROM, {})["page/source.js"])
    whole = page_files(device, RUNTIME)

    assert "ONNXRUNTIME = null" in without
    assert "NEEDS_TOKEN = true" in without
    source = _text(whole["page/source.js"])
    assert 'DESCRIPTION = "keyboard/keyboard.json"' in source
    assert "NEEDS_TOKEN = false" in source
    large = whole["page/onnxruntime-web-1.30.0/a.wasm"]
    assert large.never_changes
    assert large.compressed is not None
    assert gzip.decompress(large.compressed) == large.content == b"large"


def test_onnxruntime_is_used_whole_and_unchanged_or_not_at_all(tmp_path: Path) -> None:
    assert runtime_files(tmp_path / "absent") == {}
    (tmp_path / "ort.wasm.min.mjs").write_bytes(b"another")

    with pytest.raises(PageError, match=r"ort\.wasm\.min\.mjs must be 219e6a1f.*sotto-serve fetch"):
        runtime_files(tmp_path)


@pytest.mark.parametrize(
    ("npm", "told"),
    [
        (None, "npm is missing; install Node.js"),
        ("echo no such package >&2; exit 1", "could not fetch onnxruntime-web .*: no such package"),
        ("echo changed > $6/onnxruntime-web-1.30.0.tgz", "SHA-512 of onnxruntime-web .* must be"),
    ],
    ids=["missing", "failing", "changed"],
)
def test_what_npm_brings_is_believed_only_if_it_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, npm: str | None, told: str
) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    if npm is not None:
        (commands / "npm").write_text(f"#!/bin/sh\n{npm}\n")
        (commands / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(commands))

    with pytest.raises(PageError, match=told):
        fetch(tmp_path / "kept")

    assert not (tmp_path / "kept").exists()


def _text(file: PageFile) -> str:
    return file.content.decode()
