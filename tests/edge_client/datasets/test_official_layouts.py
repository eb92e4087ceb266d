"""Each set loads from tiny files in its official layout, in its own folder or one above."""

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_client.datasets.registry import DATASETS, load_by_user_time, load_dataset
from edge_client.datasets.text.irc import is_bot
from edge_client.datasets.text.sms_xml import read_messages
from edge_client.datasets.text_set import DatasetError


def write_ptb(folder: Path) -> None:
    for part, line in (
        ("train", " we sing <unk> N songs "),
        ("valid", " we hum "),
        ("test", " x "),
    ):
        (folder / f"ptb.{part}.txt").write_text(f"{line}\n{line}\n")


def write_wikitext(folder: Path) -> None:
    for part in ("train", "valid", "test"):
        (folder / f"wiki.{part}.tokens").write_text(
            " \n = Lobster = \n \n The lobster @-@ red . \n"
        )


def write_reddit(folder: Path) -> None:
    for part in ("train", "dev", "test"):
        (folder / f"{part}.tsv").write_text(f"I like {part}, [NAME]! So do I\t27\teebbqej\n")


def write_sms(folder: Path) -> None:
    with gzip.open(folder / "messages_en.jsonl.gz", "wt") as lines:
        for row in _messages():
            lines.write(json.dumps(row) + "\n")


def write_irc(folder: Path) -> None:
    with gzip.open(folder / "messages.jsonl.gz", "wt") as lines:
        for split, user, text in (
            ("train", "ann", "bob: how are you?"),
            ("train", "bob", "ann, fine"),
            ("train", "ubottu", "ann: please read the guide"),
            ("dev", "ann", "note: this stays"),
            ("test", "eve", "hello ann"),
        ):
            lines.write(json.dumps({"split": split, "line": 1, "user": user, "text": text}) + "\n")


def _messages() -> list[dict[str, object]]:
    # Stored newest first: the time sent decides, so text 0 is the oldest.
    own = [
        {
            "id": 1,
            "user": "ann",
            "text": f"{'w' * (number + 1)}",
            "sent": f"2011.01.{number:02} 10:00",
        }
        for number in reversed(range(1, 21))
    ]
    undated = [
        {"id": 2, "user": "bob", "text": "first"},
        {"id": 3, "user": "bob", "text": "second"},
    ]
    return [*own, *undated, {"id": 4, "user": "0", "text": "nobody"}]


def write_irc_excerpts(folder: Path) -> None:
    for split, log in (
        (
            "train",
            "=== eve [n=eve@10.0.0.1] has joined #ubuntu\n"
            "[09:14] <ann> bob: how are you?\n"
            "[09:14]  * ann waves\n"
            "[09:15] <@bob> ann, fine\n"
            "[09:15] <ubottu> ann: please read the guide\n",
        ),
        ("dev", "[23:59] <ann> note: this stays\n"),
        ("test", "[00:00] <eve> hello ann\n"),
    ):
        (folder / split).mkdir(parents=True)
        (folder / split / f"2004-12-25.{split}.raw.txt").write_text(log)
        # Beside the raw text lie other forms of it, which are not read.
        (folder / split / f"2004-12-25.{split}.ascii.txt").write_text("[09:14] <ann> twice\n")
        (folder / split / f"2004-12-25.{split}.annotation.txt").write_text("1000 1002 -\n")


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "ptb": ("ptb", write_ptb),
    "wikitext2": ("wikitext-2", write_wikitext),
    "reddit": ("reddit_goemotions", write_reddit),
    "sms": ("nus_sms", write_sms),
    "irc": ("ubuntu_irc", write_irc),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_set_loads_from_its_folder_and_from_the_folder_of_all_sets(
    tmp_path: Path, name: str
) -> None:
    folder_name, write = WRITERS[name]
    folder = tmp_path / folder_name
    folder.mkdir()
    write(folder)

    assert load_dataset(name, folder) == load_dataset(name, tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder_name, write = WRITERS[name]
    write(tmp_path)
    last = max(tmp_path.iterdir())
    last.unlink()

    with pytest.raises(DatasetError) as refused:
        load_dataset(name, tmp_path)

    assert last.name in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert folder_name in str(refused.value)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "manual"])
def test_without_a_path_the_reader_learns_how_to_give_one(name: str) -> None:
    with pytest.raises(DatasetError, match=r"--data.*SOTTO_DATA"):
        load_dataset(name)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DatasetError, match=r"one of manual, ptb, .* got 'ptp'"):
        load_dataset("ptp")


def test_penn_treebank_words_are_taken_as_they_are(tmp_path: Path) -> None:
    write_ptb(tmp_path)

    text = load_dataset("ptb", tmp_path)

    assert text.train == {"ptb": [["we", "sing", "<unk>", "N", "songs"]] * 2}
    assert text.valid == {"ptb": [["we", "hum"]] * 2}
    assert not text.has_users


def test_blank_lines_of_wikitext_are_sentences_without_words(tmp_path: Path) -> None:
    write_wikitext(tmp_path)

    text = load_dataset("wikitext2", tmp_path)

    expected = [[], ["=", "Lobster", "="], [], ["The", "lobster", "@-@", "red", "."]]
    assert text.test == {"wikitext2": expected}


def test_masked_names_of_reddit_are_unknown_words(tmp_path: Path) -> None:
    write_reddit(tmp_path)

    text = load_dataset("reddit", tmp_path)

    assert text.valid == {"reddit": [["i", "like", "dev", "<unk>"], ["so", "do", "i"]]}


def test_a_reddit_line_without_a_tab_is_refused_by_number(tmp_path: Path) -> None:
    write_reddit(tmp_path)
    (tmp_path / "dev.tsv").write_text("fine\t1\tx\nno tab here\n")

    with pytest.raises(DatasetError, match=r"dev\.tsv, line 2"):
        load_dataset("reddit", tmp_path)


def test_each_phone_user_trains_on_the_oldest_messages_and_is_tested_on_the_newest(
    tmp_path: Path,
) -> None:
    write_sms(tmp_path)

    text = load_dataset("sms", tmp_path)

    # 20 messages: 16 to train, 2 and 2 held out; bob has too few to hold any out.
    assert [len(sentence[0]) for sentence in text.train["ann"]] == list(range(2, 18))
    assert [len(sentence[0]) for sentence in text.valid["ann"]] == [18, 19]
    assert [len(sentence[0]) for sentence in text.test["ann"]] == [20, 21]
    assert text.train["bob"] == [["first"], ["second"]]
    assert text.has_users
    assert text.train.keys() == {"ann", "bob"}
    assert text.notes == ("1 messages of unknown senders were left out",)


def test_chat_keeps_its_split_and_loses_its_bots_and_addressees(tmp_path: Path) -> None:
    write_irc(tmp_path)

    text = load_dataset("irc", tmp_path)

    assert text.train == {"ann": [["how", "are", "you"]], "bob": [["fine"]]}
    assert text.valid == {"ann": [["note", "this", "stays"]]}
    assert text.test == {"eve": [["hello", "ann"]]}
    assert text.notes == ("1 bots with 1 messages were left out",)


def test_a_nickname_that_mostly_repeats_long_messages_is_a_bot() -> None:
    rule = "please read the rules of this channel before you ask"
    chatter = [f"what is number {number} for" for number in range(7)]

    assert is_bot("helper", [rule] * 8 + chatter)
    assert not is_bot("helper", [rule] * 7 + chatter + ["yes"])  # 7 of 15 is not most
    assert not is_bot("helper", ["yes"] * 15)
    assert is_bot("FloodBot3", [])
    assert not is_bot("abbot", ["hello"])


def test_a_line_that_is_no_message_is_refused_by_number_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text('{"user": "ann", "text": "private"}\n\n{"user": "ann", "txt": "private"}\n')

    with pytest.raises(DatasetError, match=r"messages\.jsonl, line 3: .*`text`") as refused:
        load_dataset("jsonl", path)

    assert "private" not in str(refused.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    write_sms(tmp_path)
    path = tmp_path / "messages_en.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(DatasetError, match="is damaged"):
        load_dataset("sms", path)
    path.write_bytes(b"not gzip at all")
    with pytest.raises(DatasetError, match=r"messages_en\.jsonl\.gz"):
        load_dataset("sms", path)


# SMS as XML.

MESSAGE = (
    '<message id="1"><text>{text}</text><source><srcNumber>51</srcNumber><userProfile>'
    "<userID>{user}</userID><age>21-25</age></userProfile></source><destination>"
    '<destNumber>7</destNumber></destination><messageProfile language="en" time="{sent}"/>'
    '<collectionMethod time="2011/1"/></message>\n'
)


def sms_xml() -> bytes:
    """Return the messages of `write_sms` as the corpus is published."""
    rows = "".join(
        MESSAGE.format(text=row["text"], user=row["user"], sent=row.get("sent", "unknown"))
        for row in _messages()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?><smsCorpus date="2015.03.09" version="1.2">\n'
    return f"{head}{rows}</smsCorpus>".encode()


def zipped(path: Path, content: bytes, name: str = "smsCorpus_en_2015.03.09_all.xml") -> Path:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


@pytest.mark.parametrize("form", ["xml", "zip"])
def test_the_published_xml_loads_as_the_lines_made_from_it(tmp_path: Path, form: str) -> None:
    write_sms(tmp_path)
    lines = load_dataset("sms", tmp_path)
    folder = tmp_path / "nus_sms"
    folder.mkdir()
    file = folder / f"smsCorpus_en_2015.03.09_all.{form}"
    if form == "xml":
        file.write_bytes(sms_xml())
    else:
        zipped(file, sms_xml())

    assert load_dataset("sms", folder) == lines
    assert load_dataset("sms", file) == lines


def test_marks_and_entities_of_xml_become_what_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "smsCorpus_en.xml"
    typed = "me &amp; you &lt;3 &#252;ber <![CDATA[a&b]]>"
    content = MESSAGE.format(text=typed, user="ann", sent="unknown")
    # The version of 2004 has a document type, and names senders by number alone.
    older = "<message id='2'><text>ok</text><source><srcNumber>9</srcNumber></source></message>"
    file.write_text(
        f"<!DOCTYPE smsCorpus [ <!ELEMENT text (#PCDATA)> ]><smsCorpus>{content}{older}</smsCorpus>"
    )

    messages = read_messages(file)

    assert [(message.user, message.text) for message in messages] == [
        ("ann", "me & you <3 über a&b"),
        ("9", "ok"),
    ]


LAUGHS = """<!DOCTYPE smsCorpus [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<smsCorpus><message><text>&b;</text></message></smsCorpus>"""
FETCHES = """<!DOCTYPE smsCorpus [<!ENTITY own SYSTEM "file:///etc/hostname">]>
<smsCorpus><message><text>&own;</text></message></smsCorpus>"""


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (LAUGHS, r"line 1: declares an entity"),
        (FETCHES, r"line 1: declares an entity"),
        ("<smsCorpus>\n<message></smsCorpus>", r"line 2: mismatched tag"),
        ("<html></html>", "line 1: must begin with smsCorpus"),
        ("<smsCorpus></smsCorpus>", "with messages in it, got none"),
        ("<smsCorpus><message><text>private</text></message></smsCorpus>", "name its sender"),
        (MESSAGE.format(text="x" * 70_000, user="1", sent=""), "must begin with smsCorpus"),
        (
            f"<smsCorpus>{MESSAGE.format(text='x' * 70_000, user='1', sent='')}</smsCorpus>",
            "at most 65536 characters",
        ),
        ("", "no element found"),
    ],
)
def test_xml_that_is_no_corpus_is_refused_by_line(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "smsCorpus_en.xml"
    file.write_text(content)

    with pytest.raises(DatasetError, match=told) as refused:
        load_dataset("sms", file)

    assert str(file) in str(refused.value)
    assert "private" not in str(refused.value)


def test_an_archive_may_not_grow_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_client.datasets.text.sms_xml.LARGEST_BYTES", 8 << 20)
    # 16 MiB of blanks in 16 kB of archive.
    bomb = zipped(tmp_path / "smsCorpus_en.zip", b"<smsCorpus>" + b" " * (16 << 20))
    assert bomb.stat().st_size < 100_000

    with pytest.raises(DatasetError, match="at most 8 MiB of XML"):
        load_dataset("sms", bomb)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    two = zipped(zipped(tmp_path / "two.zip", sms_xml()), sms_xml(), "another.xml")
    with pytest.raises(DatasetError, match=r"must hold one \.xml file, got 2"):
        load_dataset("sms", two)
    cut = tmp_path / "cut.zip"
    cut.write_bytes(two.read_bytes()[:-30])
    with pytest.raises(DatasetError, match="is damaged"):
        load_dataset("sms", cut)


# IRC as raw logs.


def test_published_excerpts_load_as_the_lines_made_from_them(tmp_path: Path) -> None:
    for name in ("lines", "raw"):
        (tmp_path / name).mkdir()
    write_irc(tmp_path / "lines")
    write_irc_excerpts(tmp_path / "raw" / "ubuntu_irc")

    lines, raw = (load_dataset("irc", tmp_path / name) for name in ("lines", "raw"))

    assert raw == lines


@pytest.mark.parametrize("layout", ["2013/10/2013-10-{day:02}.txt", "2013/10/{day:02}/#ubuntu.txt"])
def test_daily_logs_train_on_the_old_days_and_hold_out_the_new(tmp_path: Path, layout: str) -> None:
    for day in reversed(range(1, 21)):
        log = tmp_path / layout.format(day=day)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(
            f"[00:01] <ann> {'w' * day}\n[00:02] <ubottu> please read the guide\n"
            "[00:03]  * ann waves\n=== eve is now known as adam\n"
        )
    (tmp_path / "README.txt").write_text("Logs of one channel.\n")

    text = load_dataset("irc", tmp_path)

    # 20 messages of ann: 16 to train, 2 and 2 held out.
    assert [len(sentence[0]) for sentence in text.train["ann"]] == list(range(1, 17))
    assert [len(sentence[0]) for sentence in text.valid["ann"]] == [17, 18]
    assert [len(sentence[0]) for sentence in text.test["ann"]] == [19, 20]
    assert text.train.keys() == {"ann"}
    assert text.notes == ("1 bots with 20 messages were left out",)


def test_each_nickname_can_be_split_by_time_whatever_the_excerpts(tmp_path: Path) -> None:
    rows = [("dev", 20, 20), ("train", 1, 10), ("test", 11, 19)]
    with gzip.open(tmp_path / "messages.jsonl.gz", "wt") as lines:
        for split, first, last in rows:
            for day in range(first, last + 1):
                row = {"split": split, "day": f"2004-12-{day:02}", "user": "ann", "text": "w" * day}
                lines.write(json.dumps(row) + "\n")

    text = load_by_user_time("irc", tmp_path)

    assert [len(sentence[0]) for sentence in text.train["ann"]] == list(range(1, 17))
    assert [len(sentence[0]) for sentence in text.test["ann"]] == [19, 20]


def test_published_excerpts_can_be_split_by_time_too(tmp_path: Path) -> None:
    for day in reversed(range(1, 13)):
        folder = tmp_path / ("train", "dev", "test")[day % 3]
        folder.mkdir(exist_ok=True)
        log = folder / f"2004-12-{day:02}.raw.txt"
        log.write_text(f"[00:01] <ann> {'w' * day}\n")

    text = load_by_user_time("irc", tmp_path)

    assert [len(sentence[0]) for sentence in text.test["ann"]] == [12]


def test_a_log_of_many_years_may_mix_encodings(tmp_path: Path) -> None:
    log = tmp_path / "2005-01-01.txt"
    log.write_bytes("[00:01] <ann> grüße\n".encode() + "[00:02] <ann> grüße\n".encode("latin-1"))

    assert load_dataset("irc", log).train == {"ann": [["grüße"], ["grüße"]]}


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"private letter\n", r"no line begins with \[hh:mm\]"), (b"[00:01] <a> \0", "binary file")],
)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    log = tmp_path / "2005-01-01.txt"
    log.write_bytes(content)

    with pytest.raises(DatasetError, match=told) as refused:
        load_dataset("irc", tmp_path)

    assert str(log) in str(refused.value)
    assert "private" not in str(refused.value)
