"""Links of guides lead somewhere, and a broken one is named with its file, its line and why."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.docs import check
from deploy.docs.guides import read_guides, tracked_files
from deploy.docs.links import broken
from deploy.docs.navigation import ReadingOrderError, navigation
from deploy.docs.settings_files import FILES, SettingsFile
from deploy.docs.settings_pages import settings_page
from deploy.docs.staging import stage
from deploy.docs.whole import missing

GOOD = {
    "README.md": """# One
A [guide](docs/guide.md#two-words-of-code), [itself](#one), [a folder](docs), [its code](code.py),
[a folder of code](tools), [elsewhere](https://example.org/nothing), ![a picture](docs/dot.png) and

```
[no link](nowhere.md)
```
""",
    "docs/README.md": "# List\n[guide](guide.md) and [the first](../README.md)\n",
    "docs/guide.md": "# Guide\n## Two: `words` of code\n## Twice\n## Twice\n[see](#twice-1)\n",
    "docs/dot.png": "not looked into",
    "code.py": '"""See docs/guide.md#twice."""\n',
    "tools/saw.py": "SHARP = True\n",
}


def checkout(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


def test_every_link_of_this_checkout_leads_somewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 0, capsys.readouterr().out


def test_links_to_guides_headings_folders_code_and_pictures_lead_somewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path, GOOD)

    assert check.main([str(root)]) == 0
    # Nine lead within it: what stands in a block of code is no link, and no other host is asked.
    assert capsys.readouterr().out == "9 links of 3 guides lead somewhere\n"


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("[a](docs/gone.md)", "docs/gone.md: there is no docs/gone.md"),
        ("[a](Docs/guide.md)", "Docs/guide.md: there is no Docs/guide.md"),
        (
            "[a](docs/guide.md#twise)",
            "docs/guide.md#twise: docs/guide.md has no heading #twise; the nearest is #twice",
        ),
        ("[a](#two)", "#two: README.md has no heading #two"),
        ("[a](docs#lost)", "docs#lost: docs/README.md has no heading #lost; the nearest is #list"),
        ("[a](code.py#L1)", "code.py#L1: code.py is no guide, so it has no heading #L1"),
        ("![a](dot.png)", "dot.png: there is no dot.png"),
        ('<img src="dot.png" alt="a">', "dot.png: there is no dot.png"),
        ("[a](../out.md)", "../out.md: leads out of the checkout"),
        ("[a](/docs/guide.md)", "/docs/guide.md: must be relative to its guide"),
        ("[a][k]\n\n[k]: gone.md", "gone.md: there is no gone.md"),
        ("| a |\n| --- |\n| [a](gone.md) |", "gone.md: there is no gone.md"),
    ],
)
def test_a_broken_link_is_named_with_its_line_and_what_is_wrong(
    written: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The README has seven lines, so a paragraph after it begins in line 9, and a table in line 11.
    number = 13 if written.startswith("|") else 10
    first = GOOD["README.md"] + f"\nTwo lines of one paragraph,\n{written}\n"
    first = first.replace("paragraph,\n|", "paragraph.\n\n|")
    root = checkout(tmp_path, {**GOOD, "README.md": first})

    assert check.main([str(root)]) == 1
    assert capsys.readouterr().out.startswith(f"README.md:{number}: {line}")


def test_what_no_link_leads_to_and_what_code_misnames_is_named_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {
        "docs/lonely.md": "# Lonely\n[first](../README.md)\n",
        "code.py": "# See docs/gone.md.\nRAISED = 'read docs/guide.md#thrice'\n",
    }
    root = checkout(tmp_path, {**GOOD, **changes})

    assert check.main([str(root)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/lonely.md:1: no link leads to this guide from README.md; add one, or delete the "
        "guide",
        "code.py:1: docs/gone.md: there is no such guide",
        "code.py:2: docs/guide.md#thrice: docs/guide.md has no heading #thrice; the nearest is "
        "#twice",
    ]


def test_a_link_to_what_git_does_not_keep_is_broken(tmp_path: Path) -> None:
    root = checkout(tmp_path, {**GOOD, ".gitignore": "/code.py\n"})
    files = tracked_files(root)

    (line,) = broken(read_guides(root, files), files)

    assert line == "README.md:2: code.py: there is no code.py"


def test_a_folder_without_git_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    with pytest.raises(SystemExit) as ending:
        check.main([str(tmp_path)])

    assert ending.value.code == 1
    assert f"{tmp_path} must be a checkout" in capsys.readouterr().err


def test_what_the_site_is_built_from_has_a_page_for_each_file_that_is_linked_to(
    tmp_path: Path,
) -> None:
    root, staged = checkout(tmp_path / "root", GOOD), tmp_path / "staged"
    files = tracked_files(root)

    stage(root, staged, read_guides(root, files), files, {"made.md": "[saw](tools/saw.py)"})

    assert "[saw](tools/saw.py.md)" in (staged / "made.md").read_text()
    assert "[its code](code.py.md)" in (staged / "README.md").read_text()
    assert "[`saw.py`](saw.py.md)" in (staged / "tools/README.md").read_text()
    assert "SHARP = True" in (staged / "tools/saw.py.md").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.page)
def test_every_setting_stands_in_its_files_page_with_what_it_means(file: SettingsFile) -> None:
    rows = [line for line in settings_page(file).splitlines() if line.startswith("| `")]
    parts = file.schema()["$defs"].values()

    assert {row.split("`")[1] for row in rows} == {
        name for part in parts for name in part.get("properties", {})
    }
    assert [row for row in rows if row.endswith("|  |")] == []


def test_a_row_says_type_default_and_meaning() -> None:
    page = settings_page(next(file for file in FILES if file.page == "serve"))

    assert "| `listen` | [table](#listen) | as below | Where it is reached. |" in page
    assert "| `grpc_address` | text | absent | `host:port` for devices that ask over gRPC;" in page
    assert "| `behind_tls_proxy` | true or false | `false` | Whether another program " in page


def test_every_guide_has_one_place_and_the_people_come_first() -> None:
    guides = read_guides(check.ROOT, tracked_files(check.ROOT))

    pages = navigation(guides, [])

    assert [name for tab in pages for name in tab][:4] == [
        "Start",
        "Deploy",
        "Tune the noise",
        "Serve",
    ]
    assert sorted(_paths(pages)) == sorted(guides)


def _paths(entries: object) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    below = entries.values() if isinstance(entries, dict) else entries
    assert not isinstance(below, str)
    return [path for each in below for path in _paths(each)]  # type: ignore[attr-defined]


def test_a_list_without_one_of_the_three_people_is_refused() -> None:
    guides = read_guides(check.ROOT, tracked_files(check.ROOT))
    text = guides["docs/README.md"].text.replace("## You serve", "## They serve")
    guides["docs/README.md"] = type(guides["docs/README.md"])("docs/README.md", text)

    with pytest.raises(ReadingOrderError, match="must have the heading"):
        navigation(guides, [])


def test_a_page_that_loads_from_elsewhere_or_lacks_a_file_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "there.css").touch()
    (tmp_path / "page.html").write_text(
        '<link rel="stylesheet" href="there.css"><a href="https://example.org">out</a>'
        '<script src="https://example.org/x.js"></script><img src="gone.png"><a href="#here">h</a>'
    )

    assert list(missing(tmp_path)) == [
        "page.html: script https://example.org/x.js: is loaded from another host",
        "page.html: img gone.png: is not there",
    ]
