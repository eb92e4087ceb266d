"""Measure the page: how soon a browser suggests words, and what a word costs it.

Figures (``--json`` prints them as one object; times are medians, ``_p99`` beside them: of the
openings, which are few, and of blocks of words):

    browser_cold_s   From an empty browser's first request to the keyboard, the typing of a token
                     left out: page, onnxruntime and the float32 model fetched, checked and loaded.
    browser_warm_s   The same when the page is opened again: everything but the personal part is
                     in the browser.
    transferred_mb   Bytes of all files of the first, as they travel, added up; 1 MB = 10^6.
    browser_step_ms, browser_step_int8_ms
                     One word read and every word scored, state carried, in the browser.
    native_step_ms, native_step_int8_ms
                     The same by onnxruntime in this process.
    versus_native, versus_native_int8
                     browser_step_ms over native_step_ms; the same in 8 bits.
    browser_suggestion_ms
                     From a text typed key by key to its strip, in the browser, float32; the mean,
                     and each key for the percentile. One letter in twenty is a slip.
    largest_difference
                     Of the log-probabilities of all words after a text, in nats, browser and
                     native; float32.

The browser is headless, on this machine, and its server is too, so the network costs nothing. One
thread each. The model is the tied GRU of width 400 with 10,000 words, as wide as the shipped start;
nobody trained it, which changes no time. Browsers give times in steps of 0.1 ms, so fifty words are
timed at once. Without a browser (chromium on the PATH) or onnxruntime-web (`make page`), it says so
and measures nothing.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console

from benchmarks.export import test_sentences
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.serving_http import make_folder, make_release, put, running
from benchmarks.typos import Fingers
from export.bundles.keyboard_bundle import load_bundle
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.page.onnxruntime_web import runtime_files
from export.page.page_files import page_files
from export.runtime.word_graph import NextWordGraph
from export.serve.doors.page import SERVED_FROM
from export.serve.folder.tokens import make_tokens
from models.settings.model import GruLmSettings
from models.settings.personalisation import GlobalSettings
from models.text.vocabulary import EOS, shipped_vocabulary

BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
BLOCK_WORDS = 50
KEYBOARD = GruLmSettings(vocabulary_size=10_000, hidden_size=400, tied=True)
MB = 1e6
# Opens one version by the page's own modules, and asks it as the page does.
PROGRAM = """
async ({ token, place, tokens, texts, block }) => {
  const { Library } = await import("./page/library.js");
  const { openKeyboard } = await import("./page/opening.js");
  const { DESCRIPTION, FILES, ONNXRUNTIME } = await import("./page/source.js");
  const library = new Library(DESCRIPTION, FILES, token);
  const description = await library.describe();
  const version = description.versions[place];
  const opened = await openKeyboard(library, description, version, ONNXRUNTIME, () => {});
  const { graph, keyboard } = opened;
  let state = graph.freshState();
  let distribution;
  const steps = [];
  for (let start = 0; start < tokens.length; start += block) {
    const began = performance.now();
    const some = tokens.slice(start, start + block);
    for (const one of some) ({ state, distribution } = await graph.step([one], state));
    steps.push((performance.now() - began) / some.length);
  }
  const suggestions = [];
  for (const text of texts) {
    const began = performance.now();
    await keyboard.suggest(text);
    suggestions.push(performance.now() - began);
  }
  await opened.close();
  return { steps, suggestions, distribution: Array.from(distribution) };
}
"""


def measure(browser: Browser, folder: Path, words: int, openings: int) -> dict[str, float]:
    """Serve both models, and measure them in the browser and here."""
    bundles = {"": folder / "float32.zip", "_int8": folder / "int8.zip"}
    release = make_release(KEYBOARD, GlobalSettings(), 1)
    export_bundle(KeyboardKind(), release, bundles[""])
    export_bundle(KeyboardKind(), release, bundles["_int8"], precision="int8")
    serving = make_folder(folder / "serving", bundles["_int8"])
    put(serving, bundles[""])  # the present version; the other is the one before
    (token,) = make_tokens(serving, ["ann"]).values()
    sentences = test_sentences()
    tokens = shipped_vocabulary().token_stream(sentences)[:words].tolist()
    fingers = Fingers(seed=1)
    typed = (fingers.type(word) for sentence in sentences for word in sentence)
    text = " ".join(typed)[: 4 * words]
    texts = [text[:end] for end in range(1, len(text))]
    figures = {"transferred_mb": _travelling_bytes(bundles[""]) / MB}
    with running(serving) as server:
        url = f"http://{server.address}/"
        figures |= _openings(browser, url, token, openings)
        for place, (name, bundle) in enumerate(bundles.items()):
            page = _page(browser, url)
            asked = {"tokens": [EOS, *tokens], "texts": texts, "block": BLOCK_WORDS}
            found = page.evaluate(PROGRAM, {"token": token, "place": place, **asked})
            page.context.close()
            figures |= _compared(found, bundle, [EOS, *tokens], name)
    return figures


def _travelling_bytes(bundle: Path) -> int:
    """Return the bytes of all files that the page fetches for a model, as they travel."""
    page = page_files(SERVED_FROM, runtime_files()).values()
    model = load_bundle(bundle).manifest.files.values()
    return sum(len(file.compressed or file.content) for file in page) + sum(
        digest.size_bytes for digest in model
    )


def _openings(browser: Browser, url: str, token: str, count: int) -> dict[str, float]:
    cold_s, warm_s = [], []
    for _ in range(count):
        page = browser.new_page()
        cold_s.append(_opened_s(page, partial(page.goto, url), token))
        page.evaluate("navigator.serviceWorker.ready.then(() => 0)")
        warm_s.append(_opened_s(page, page.reload, token))
        page.close()
    return {
        "browser_cold_s": float(np.median(cold_s)),
        "browser_cold_s_p99": float(np.percentile(cold_s, 99)),
        "browser_warm_s": float(np.median(warm_s)),
    }


def _opened_s(page: Page, begin: Callable[[], object], token: str) -> float:
    """Return what the page takes until a token can be typed, and from then to the keyboard."""
    started = time.perf_counter()
    begin()
    field = page.get_by_label("Your token")
    field.wait_for()
    ready_s = time.perf_counter() - started
    field.fill(token)
    started = time.perf_counter()
    field.press("Enter")
    page.locator("#strip button:enabled").first.wait_for()
    return ready_s + time.perf_counter() - started


def _page(browser: Browser, url: str) -> Page:
    page = browser.new_page()
    page.set_default_timeout(600_000)
    page.goto(url)
    return page


def _compared(
    found: dict[str, Any], bundle: Path, tokens: list[int], name: str
) -> dict[str, float]:
    """Read the same words here, and put both sides' figures together."""
    graph = NextWordGraph(load_bundle(bundle).graph)
    state = graph.fresh_state()
    seconds = []
    for token in tokens:
        started = time.perf_counter()
        prediction = graph.step(np.array([[token]]), state, k=5)
        seconds.append(time.perf_counter() - started)
        state = prediction.state
    step_ms = float(np.median(found["steps"]))
    native_ms = float(np.median(seconds) * 1e3)
    figures = {
        f"browser_step{name}_ms": step_ms,
        f"browser_step{name}_ms_p99": float(np.percentile(found["steps"], 99)),
        f"native_step{name}_ms": native_ms,
        f"versus_native{name}": step_ms / native_ms,
    }
    if not name:
        difference = np.abs(np.array(found["distribution"]) - prediction.distribution[0])
        figures["browser_suggestion_ms"] = float(np.mean(found["suggestions"]))
        figures["browser_suggestion_ms_p99"] = float(np.percentile(found["suggestions"], 99))
        figures["largest_difference"] = float(difference.max())
    return figures


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer words and openings")
    arguments = parser.parse_args()
    words, openings = (300, 1) if arguments.quick else (1000, 5)
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None or not runtime_files():
        what = "chromium on the PATH" if found is None else "onnxruntime-web (run `make page`)"
        Console(stderr=True).print(f"not measured: there is no {what}")
        return
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=found)
        figures = measure(browser, Path(folder), words, openings)
        version = browser.version
        browser.close()
    show_figures(figures, f"the page in headless Chromium {version}", as_json=arguments.json)


if __name__ == "__main__":
    main()
