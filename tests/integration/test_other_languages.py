"""From a language's word list to suggestions: a start, a simulated round, an exported bundle."""

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from export.cli import main as export
from export.serve.cli import main as serve
from models.compression.packed_model import read_packed
from models.text.vocabulary import load_vocabulary
from models.text.words import tokenise
from server.cli import main as server
from server.config.federation import read_config
from simulation.cli import main as simulate

PAGE = (Path(__file__).parents[2] / "docs" / "other-languages.md").read_text()


@dataclass(frozen=True)
class Keyboard:
    """A language, what people write in it, and what their strip must know.

    Attributes:
        listed: Words that its list has, as they are shown.
        begun: A begun word by the word that must be suggested for it.
        opening: Typed before a next word of the text is expected.
    """

    language: str
    text: str
    listed: frozenset[str]
    begun: Mapping[str, str]
    opening: str


GERMAN = Keyboard(
    "de",
    """\
Guten Morgen, wie geht es dir heute?
Das Haus in der Straße ist sehr groß.
Wir gehen am Abend nach Hause.
Ich weiß, dass du morgen kommst!
""",
    frozenset({"Haus", "Straße", "groß", "weiß", "dass"}),
    {"Haus": "das haus", "Straße": "das Haus in der straß"},
    "guten ",
)
FRENCH = Keyboard(
    "fr",
    """\
Bonjour, comment ça va aujourd'hui ?
L'école est à côté de la mairie.
Nous allons être là demain matin.
Qu'est-ce que tu as déjà fait ?
""",
    frozenset({"l'", "qu'", "être", "déjà", "côté"}),
    {"déjà": "tu as dé", "être": "nous allons ê", "l'école": "l'éco"},
    "nous allons ",
)


@pytest.fixture
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for what npm brings to a page."""
    monkeypatch.setattr("export.page.device_site.runtime_files", lambda: {"ort.mjs": b"ort"})


def from_start(language: str, words: Path, packed: Path) -> list[str]:
    """Return the settings of a tiny run from a start, by its language and list."""
    settings = {
        "data": '{dataset = "folder", partition = "users"}',
        "vocabulary": f'{{path = "{words}", size = 2000, languages = ["{language}"]}}',
        "model.vocabulary_size": "2000",
        "model.hidden_size": "64",
        "training.learning_rate": "0.1",
        "start_from": f'"{packed}"',
    }
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


@pytest.mark.slow
@pytest.mark.usefixtures("_runtime")
@pytest.mark.parametrize("keyboard", [GERMAN, FRENCH], ids=lambda one: one.language)
def test_a_keyboard_of_another_language_from_its_list_to_its_page(
    keyboard: Keyboard,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Enough for a list of this size; the rest is read for rarer emoji.
    monkeypatch.setattr("models.data.language_lists._READ_ENTRIES", 5000)
    language = keyboard.language
    first, second = tmp_path / "first", tmp_path / "second"
    tiny = ["--preset", "keyboard-tiny", "--language", language]
    # Three people who write the same all the time.
    text = tmp_path / "text"
    text.mkdir()
    for name in ("anke", "jens", "ute"):
        (text / f"{name}.txt").write_text(keyboard.text * 40)

    # The list is made beside the settings, and nothing to start from is promised.
    assert server(["init", str(first), *tiny]) == 0
    told = capsys.readouterr().out
    assert f"no start of language {language} ships with sotto" in told
    words = first / f"{language}-2k.txt"
    assert keyboard.listed < set(load_vocabulary(words).words)
    assert "Robyn Speer" in (first / f"{language}-2k.NOTICE").read_text()

    # A start is learnt on it, which a federation of the language takes.
    packed = tmp_path / "start.sotto"
    given = ["--text", str(text), "--words", str(words), "--language", language]
    size = ["--width", "64", "--epochs", "20", "--pack", str(packed)]
    assert simulate(["start", *given, *size, "--out", str(tmp_path / "start")]) == 0
    listed_words = read_packed(packed).description.vocabulary
    assert listed_words is not None
    assert listed_words.languages == (language,)
    assert server(["init", str(second), *tiny, "--start", str(packed)]) == 0
    assert read_config(second / "federation.toml").start_from == str(packed)

    # One round is simulated from it, and what comes out is exported.
    run, bundle, site = (tmp_path / name for name in ("run", "bundle", "site"))
    asked = ["run", "keyboard-tiny", "--data", str(text), "--rounds", "1", "--workers", "1"]
    changed = from_start(language, words, packed)
    assert simulate([*asked, *changed, "--out", str(run)]) == 0
    assert export(["keyboard", str(run), "--out", str(bundle)]) == 0
    capsys.readouterr()

    def suggested(typed: str) -> list[str]:
        assert export(["suggest", str(bundle), typed, "--json"]) == 0
        return [one["word"] for one in json.loads(capsys.readouterr().out)["suggestions"]]

    # So short a training learns which of 2,000 words the text has, and hardly their order.
    written = set(tokenise(keyboard.text))
    assert {word.lower() for word in suggested(keyboard.opening)} <= written
    for word, begun in keyboard.begun.items():
        assert word in suggested(begun), begun
    assert export(["inspect", str(bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["languages"] == language

    # Its page has the language's list and the same graph.
    assert serve(["page", str(bundle), "--out", str(site)]) == 0
    described = json.loads((site / "keyboard/keyboard.json").read_bytes())
    (version,) = described["versions"]
    place = site / "keyboard" / version["version"]
    assert version["languages"] == [language]
    assert load_vocabulary(place / "vocabulary.txt").words == load_vocabulary(words).words
    assert (place / "model.onnx").read_bytes() == (bundle / "model.onnx").read_bytes()


@pytest.mark.slow
def test_the_guides_first_command_founds_a_keyboard_with_the_list_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.data.language_lists._READ_ENTRIES", 15_000)
    monkeypatch.chdir(tmp_path)
    line, shown = re.findall(r"^sotto-server init .*$|(?<=```toml\n)[^`]*", PAGE, re.MULTILINE)[:2]

    assert server(shlex.split(line)[1:]) == 0

    assert shown in Path("federation/federation.toml").read_text()


def test_the_guides_commands_keep_what_people_wrote_in_the_language(tmp_path: Path) -> None:
    told = [f"Das ist der {number}te Satz, und er steht nur einmal da." for number in range(20)]
    kept = [*told, "Wo ist das Haus?", "Drücken Sie auf »Weiter«."]
    left = ["Datei Bearbeiten Ansicht", "You can see it in the menu.", "Schreiben Sie an a@b.de."]
    (tmp_path / "raw").mkdir()
    (tmp_path / "text").mkdir()
    lines = [*told, " • Wo ist das Haus?", *left, "2. Drücken Sie auf »Weiter«.", *told]
    (tmp_path / "raw" / "a-page.txt").write_text("\n".join(lines))
    common = re.search(r"^common=.*$", PAGE, re.MULTILINE)
    sieve = re.search(r"^awk -v common.*?^' raw/\*\nfind text .*?$", PAGE, re.MULTILINE | re.DOTALL)
    assert common and sieve

    subprocess.run(["bash", "-c", f"{common[0]}\n{sieve[0]}"], cwd=tmp_path, check=True)

    assert (tmp_path / "text" / "a-page.txt").read_text().splitlines() == kept
