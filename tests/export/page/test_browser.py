"""The page in a browser: type, take a suggestion, change person, go on without a network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from export.bundles.keyboard_bundle import load_bundle
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.page.described import PERSONAL_FILE
from export.page.device_site import write_site
from export.page.page_files import page_files
from export.releases.release import read_release
from export.runtime.next_word import NextWords
from export.runtime.strip import Keyboard
from export.runtime.word_graph import NextWordGraph
from export.serve.doors.page import SERVED_FROM
from tests.export.page.conftest import Household, Served, shown_facts
from tests.export.promised import PROMISE

_KEYS = {" ": "space", "\n": "enter"}
_KEPT = "caches.keys().then((names) => names.includes('sotto-kept'))"
# Asks the page's own modules what they expect after each text.
_DISTRIBUTIONS = """async ({ token, texts }) => {
    const { Library } = await import("./page/library.js");
    const { openKeyboard } = await import("./page/opening.js");
    const { DESCRIPTION, FILES, ONNXRUNTIME } = await import("./page/source.js");
    const library = new Library(DESCRIPTION, FILES, token);
    const description = await library.describe();
    const [version] = description.versions;
    const opened = await openKeyboard(library, description, version, ONNXRUNTIME, () => {});
    const found = [];
    for (const text of texts) {
        found.push(Array.from((await opened.keyboard.words.read(text)).distribution));
    }
    await opened.close();
    return found;
}"""
_DAMAGE_KEPT = """async () => {
    const cache = await caches.open("sotto-kept");
    const answer = await cache.match("kept/personal.safetensors");
    const bytes = new Uint8Array(await answer.arrayBuffer());
    bytes[bytes.length - 1] ^= 1;
    await cache.put("kept/personal.safetensors", new Response(bytes));
}"""
_NOT_AS_DESCRIBED = "personal.safetensors is not what its description says"
_NO_SIMD = "WebAssembly.validate = () => false;"

# One worker: what they need is costly to make.
pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 360, "height": 740})
    made.set_default_timeout(30_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, served: Served) -> Iterator[Page]:
    """A page on which nobody has signed in; whatever it complains of fails the test."""
    complaints: list[str] = []
    made = context.new_page()
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.goto(served.url)
    yield made
    assert complaints == []


def _sign_in(page: Page, token: str) -> None:
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Open my keyboard").click()


def _open(page: Page, served: Served, name: str) -> None:
    _sign_in(page, served.tokens[name])
    expect(page.locator("#status")).to_contain_text(f"{name}'s keyboard")


def _tap(page: Page, text: str) -> None:
    for character in text:
        page.locator(f'#keys [data-key="{_KEYS.get(character, character)}"]').click()


def _expect_spared(page: Page, keyboard: Keyboard, word: str) -> None:
    """Type a word and a blank, which must not mend it."""
    _tap(page, word)
    keyboard.keep(word)
    _expect_strip(page, keyboard, word)
    _tap(page, " ")

    expect(page.get_by_label("Text", exact=True)).to_have_value(f"{word} ")


def _expect_strip(page: Page, keyboard: Keyboard, text: str) -> None:
    strip = keyboard.suggest(text)
    shown = ["" if slot is None else slot.text for slot in vars(strip).values()]
    expect(page.locator("#strip button")).to_have_text(shown)


def test_a_person_types_and_takes_a_suggestion_and_no_key_leaves_the_page(
    page: Page, served: Served
) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    _tap(page, "we se")
    _expect_strip(page, ada, "we se")
    page.locator("#strip [data-place=centre]").click()
    taken = ada.suggest("we se").centre
    assert taken is not None
    text = f"we {taken.text} "

    expect(page.get_by_label("Text", exact=True)).to_have_value(text)
    _expect_strip(page, ada, text)
    saved = len(text) - 6
    share = round(100 * saved / len(text))
    told = f"{len(text)} characters with 6 keys: {saved} saved ({share} %)"
    expect(page.locator("#saved")).to_have_text(told)
    assert requests == []


def test_a_mark_takes_the_place_of_the_space_behind_a_suggestion(
    page: Page, served: Served
) -> None:
    _open(page, served, "ada")

    _tap(page, "we se")
    page.locator("#strip [data-place=centre]").click()
    _tap(page, ".")

    taken = served.household.keyboard("ada").suggest("we se").centre
    assert taken is not None
    expect(page.get_by_label("Text", exact=True)).to_have_value(f"we {taken.text}.")


def test_a_space_mends_a_slip_and_backspace_takes_the_correction_back_for_good(
    page: Page, served: Served
) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")
    field = page.get_by_label("Text", exact=True)

    _tap(page, "we teh")
    _expect_strip(page, ada, "we teh")
    _tap(page, " ")
    expect(field).to_have_value("we the ")
    page.locator('#keys [data-key="back"]').click()
    expect(field).to_have_value("we teh")
    ada.keep("teh")
    _expect_strip(page, ada, "we teh")
    _tap(page, " ")

    expect(field).to_have_value("we teh ")


def test_a_real_keyboard_s_mark_mends_and_its_backspace_takes_it_back(
    page: Page, served: Served
) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")
    field = page.get_by_label("Text", exact=True)

    page.keyboard.type("Teh")
    _expect_strip(page, ada, "Teh")
    page.keyboard.press(".")
    expect(field).to_have_value("The.")
    page.keyboard.press("Backspace")
    expect(field).to_have_value("Teh")
    ada.keep("teh")
    _expect_strip(page, ada, "Teh")
    page.keyboard.press("Enter")

    expect(field).to_have_value("Teh\n")


def test_what_was_typed_in_two_texts_is_not_corrected(page: Page, served: Served) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")
    clear = page.get_by_role("button", name="Clear the text")

    _tap(page, "teh")
    clear.click()
    _tap(page, "teh")
    _expect_strip(page, ada, "teh")
    clear.click()
    _expect_spared(page, ada, "teh")


def test_text_from_right_to_left_runs_so_in_field_and_strip(page: Page, served: Served) -> None:
    _open(page, served, "ada")

    page.keyboard.insert_text("שלום")
    verbatim = page.get_by_role("button", name="שלום")
    expect(verbatim).to_be_visible()
    for place in (page.get_by_label("Text", exact=True), verbatim):
        assert place.evaluate("element => getComputedStyle(element).direction") == "rtl"

    page.get_by_role("button", name="Clear the text").click()
    page.keyboard.type("we")
    _expect_strip(page, served.household.keyboard("ada"), "we")
    field = page.get_by_label("Text", exact=True)
    assert field.evaluate("element => getComputedStyle(element).direction") == "ltr"


def test_writing_without_blanks_is_told_to_have_no_suggestions(page: Page, served: Served) -> None:
    _open(page, served, "ada")
    told = page.get_by_text("No suggestions: this writing has no blanks between words.")

    page.keyboard.insert_text("see 明天")
    expect(told).to_be_visible()
    for _ in "明天":
        page.keyboard.press("ArrowLeft")
    expect(told).to_have_count(0)
    page.keyboard.press("End")
    expect(told).to_be_visible()
    page.keyboard.type(" we")

    expect(told).to_have_count(0)
    _expect_strip(page, served.household.keyboard("ada"), "see 明天 we")


def test_what_is_kept_by_a_tap_is_not_corrected_again(page: Page, served: Served) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")

    _tap(page, "teh")
    _expect_strip(page, ada, "teh")
    page.get_by_role("button", name="Keep teh").click()
    page.get_by_role("button", name="Clear the text").click()
    _expect_spared(page, ada, "teh")


def test_everything_is_reached_without_a_mouse(page: Page, served: Served) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")
    expect(page.get_by_label("Text", exact=True)).to_be_focused()

    page.keyboard.type("You s")
    _expect_strip(page, ada, "You s")
    page.keyboard.press("Alt+2")
    taken = ada.suggest("You s").centre
    assert taken is not None
    expect(page.get_by_label("Text", exact=True)).to_have_value(f"You {taken.text} ")
    page.locator("#keys button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Text", exact=True)).to_have_value(f"You {taken.text} w")
    shift = page.get_by_role("button", name="Shift")
    shift.press("Enter")
    expect(shift).to_have_attribute("aria-pressed", "true")
    expect(shift).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Text", exact=True)).to_have_value(f"You {taken.text} wZ")
    unnamed = "[...document.querySelectorAll('button')].filter((one) => one.checkVisibility() && "
    unnamed += "!one.textContent && !one.ariaLabel).length"
    assert page.evaluate(unnamed) == 0


def test_everyone_sees_their_own_words_and_leaves_nothing_behind(
    page: Page, served: Served
) -> None:
    _open(page, served, "ada")
    _tap(page, "we see")
    _expect_strip(page, served.household.keyboard("ada"), "we see")

    page.get_by_role("button", name="Change person").click()
    _open(page, served, "ben")

    expect(page.get_by_label("Text", exact=True)).to_have_value("")
    _tap(page, "we see the ")
    _expect_strip(page, served.household.keyboard("ben"), "we see the ")
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate(_KEPT) is False
    for token in served.tokens.values():
        assert token not in page.content()


def test_the_page_goes_on_without_a_network_after_it_was_kept(
    page: Page, context: BrowserContext, served: Served
) -> None:
    ada = served.household.keyboard("ada")
    _open(page, served, "ada")
    page.evaluate("navigator.serviceWorker.ready.then(() => 0)")
    page.get_by_label("Keep this keyboard").check()
    expect(page.locator("#status")).to_have_text("Kept on this device.")

    context.set_offline(True)
    _tap(page, "we ")
    _expect_strip(page, ada, "we ")
    page.reload()
    page.get_by_role("button", name="Open ada's").click()
    _tap(page, "see the ")
    _expect_strip(page, ada, "see the ")

    page.get_by_label("Keep this keyboard").uncheck()
    expect(page.locator("#status")).to_have_text("Removed from this device.")
    assert page.evaluate(_KEPT) is False


@pytest.mark.parametrize(
    ("who", "told"),
    [("nobody", "the bearer token is missing or nobody's"), ("cat", "sotto-serve person")],
)
def test_who_cannot_have_a_keyboard_is_told_why(
    page: Page, served: Served, who: str, told: str
) -> None:
    _sign_in(page, served.tokens.get(who, "sotto_wrong"))

    expect(page.locator("#status")).to_contain_text(told)
    expect(page.locator("#keyboard")).to_be_hidden()


def test_a_browser_without_simd_is_told_so(context: BrowserContext, served: Served) -> None:
    page = context.new_page()
    page.add_init_script(_NO_SIMD)
    page.goto(served.url)

    _sign_in(page, served.tokens["ada"])

    expect(page.locator("#status")).to_contain_text("no WebAssembly SIMD")


def test_a_page_without_onnxruntime_names_the_command_that_fetches_it(
    browser: Browser, served: Served
) -> None:
    context = browser.new_context(service_workers="block")  # so that no older page is kept
    page = context.new_page()
    without = page_files(SERVED_FROM, {})["page/source.js"]
    body, kind = without.content, without.media_type
    page.route("**/page/source.js", lambda route: route.fulfill(body=body, content_type=kind))
    page.goto(served.url)

    _sign_in(page, served.tokens["ada"])

    expect(page.locator("#status")).to_contain_text("run `sotto-serve fetch`")
    context.close()


def _offer_a_version_before(page: Page, served: Served) -> None:
    """Let the page know of a version "before" too, of round 77, which is the same keyboard."""
    described: dict[str, Any] = dict(served.server.get("/v1/keyboard", served.tokens["ada"]).json)
    version = described["versions"][0]
    name = version["version"]
    two = described | {"versions": [version, version | {"version": "before", "round": 77}]}
    page.route("**/v1/keyboard", lambda route: route.fulfill(json=two))
    page.route(
        "**/v1/keyboard/before/*",
        lambda route: route.continue_(url=route.request.url.replace("/before/", f"/{name}/")),
    )


def test_another_version_can_be_chosen(page: Page, served: Served) -> None:
    _offer_a_version_before(page, served)
    _open(page, served, "ada")
    _tap(page, "we ")

    page.get_by_label("Version").select_option("before")

    expect(page.locator("#facts")).to_contain_text("77")
    _expect_strip(page, served.household.keyboard("ada"), "we ")


def test_what_was_kept_with_one_version_is_not_corrected_with_another(
    page: Page, served: Served
) -> None:
    ada = served.household.keyboard("ada")
    _offer_a_version_before(page, served)
    _open(page, served, "ada")
    _tap(page, "teh")
    _expect_strip(page, ada, "teh")
    page.get_by_role("button", name="Keep teh").click()
    page.get_by_role("button", name="Clear the text").click()

    page.get_by_label("Version").select_option("before")

    expect(page.locator("#facts")).to_contain_text("77")
    _expect_spared(page, ada, "teh")


def test_a_person_sees_which_model_suggests_and_what_its_privacy_has_cost(
    page: Page, served: Served
) -> None:
    _open(page, served, "ada")

    manifest = served.household.bundle.manifest
    shown = shown_facts(page, "#facts")
    assert shown["Person"] == "ada"
    assert shown["Model"].startswith("000001-")
    assert shown["Round"] == "1"
    assert shown["Own part"] == "yes, fedtp"
    assert shown["Privacy spent"] == "epsilon 77.2 at delta 0.001, after round 1"
    assert shown["Promise for the whole run"] == manifest.privacy.guarantee == PROMISE
    expect(page.locator("#voice")).to_be_hidden()


def test_where_a_voice_is_served_too_each_says_its_own_round_and_privacy(
    page: Page, served: Served
) -> None:
    described: dict[str, Any] = dict(served.server.get("/v1/keyboard", served.tokens["ada"]).json)
    voice = described["versions"][0] | {
        "version": "a-voice",
        "round": 9,
        "privacy_spent": "none promised",
        "mel": {"sample_rate_hz": 8000},
        "vocoder": None,
        "voices": ["ada"],
    }
    page.route("**/v1/keyboard", lambda route: route.fulfill(json=described | {"voice": voice}))
    _open(page, served, "ada")

    words, spoken = shown_facts(page, "#facts"), shown_facts(page, "#voice [data-part=facts]")
    assert (words["Round"], words["Privacy spent"][:7]) == ("1", "epsilon")
    assert (spoken["Model"], spoken["Round"]) == ("a-voice", "9")
    assert spoken["Privacy spent"] == "none promised"
    assert spoken["Sound"] == "8000 Hz, made by Griffin-Lim"
    expect(page.locator("[data-part=choice]")).to_contain_text("no voice of everybody's")


def test_every_probability_in_the_browser_is_the_native_one(page: Page, served: Served) -> None:
    texts = ["", "I see", "I see the sea. W", "you don't see the café and the sea and then you s"]
    words = NextWords(served.household.graph("ada"), served.household.bundle.vocabulary)

    found = page.evaluate(_DISTRIBUTIONS, {"token": served.tokens["ada"], "texts": texts})

    for text, distribution in zip(texts, found, strict=True):
        reading = words.read(text)
        assert reading is not None
        np.testing.assert_allclose(distribution, reading.distribution, atol=1e-4)


def test_a_damaged_model_is_not_run(page: Page, served: Served) -> None:
    page.route("**/vocabulary.txt", lambda route: route.fulfill(body="<unk>\n<eos>\nthe\n"))

    _sign_in(page, served.tokens["ada"])

    expect(page.locator("#status")).to_contain_text(
        "vocabulary.txt is not what its description says"
    )


def test_another_s_part_is_not_run(page: Page, served: Served) -> None:
    described: dict[str, Any] = dict(served.server.get("/v1/keyboard", served.tokens["ben"]).json)
    version = described["versions"][0]["version"]
    bens = served.server.get(f"/v1/keyboard/{version}/{PERSONAL_FILE}", served.tokens["ben"]).body
    page.route(f"**/{PERSONAL_FILE}", lambda route: route.fulfill(body=bens))

    _sign_in(page, served.tokens["ada"])

    expect(page.locator("#status")).to_contain_text(_NOT_AS_DESCRIBED)


def test_a_part_of_a_person_that_was_damaged_where_it_is_kept_is_not_run(
    page: Page, served: Served
) -> None:
    _open(page, served, "ada")
    page.get_by_label("Keep this keyboard").check()
    expect(page.locator("#status")).to_have_text("Kept on this device.")
    page.evaluate(_DAMAGE_KEPT)
    page.reload()

    page.get_by_role("button", name="Open ada's").click()

    expect(page.locator("#status")).to_contain_text(_NOT_AS_DESCRIBED)


def test_nothing_on_the_page_can_reach_another_host(page: Page) -> None:
    violated = page.evaluate(
        """() => new Promise((told) => {
            addEventListener("securitypolicyviolation", (event) => told(event.violatedDirective));
            fetch("https://example.org/").catch(() => {});
        })"""
    )

    assert violated == "connect-src"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_it_fits_phones_and_desks_by_day_and_by_night(
    browser: Browser, served: Served, scheme: str, width: int
) -> None:
    is_dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 700}, color_scheme="dark" if is_dark else "light"
    )
    page = context.new_page()
    page.goto(served.url)
    _open(page, served, "ada")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heights = "[...document.querySelectorAll('#keys button')].map((key) => key.offsetHeight)"
    assert min(page.evaluate(heights)) >= 44
    paper, ink = page.evaluate(
        """() => ["backgroundColor", "color"].map((what) =>
            getComputedStyle(document.body)[what].match(/\\d+/g).slice(0, 3)
                .reduce((sum, one) => sum + Number(one), 0))"""
    )
    assert (paper < ink) is is_dark
    context.close()


def test_a_device_serves_the_page_itself_as_plain_files(
    context: BrowserContext, household: Household, plain_files: tuple[Path, str]
) -> None:
    folder, url = plain_files
    ben = household.keyboard("ben")
    write_site(household.shared, folder, person=household.people / "ben.zip", authority=None)
    page = context.new_page()
    page.goto(url)

    expect(page.locator("#status")).to_contain_text("ben's keyboard")
    _tap(page, "see the ")

    _expect_strip(page, ben, "see the ")
    expect(page.get_by_role("button", name="Change person")).to_be_hidden()


@pytest.mark.slow
def test_keys_and_strip_are_those_of_the_bundles_language(
    context: BrowserContext, release_folder: Path, plain_files: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = plain_files
    export_bundle(KeyboardKind(["fr"]), read_release(release_folder), tmp_path / "french.zip")
    write_site(tmp_path / "french.zip", folder, person=None, authority=None)
    made = load_bundle(tmp_path / "french.zip")
    french = Keyboard(NextWordGraph(made.graph), made.vocabulary, languages=["fr"])
    page = context.new_page()
    page.goto(url)

    expect(page.locator("#status")).to_contain_text("everyone's keyboard")
    pressed = "[...document.querySelectorAll('#keys button')].map((key) => key.dataset.key)"
    letters = [key for key in page.evaluate(pressed) if len(key) == 1 and key.isalpha()]
    assert "".join(letters) == "azertyuiopqsdfghjklmwxcvbn"
    _tap(page, "we sez")

    _expect_strip(page, french, "we sez")


@pytest.mark.slow
def test_the_box_allows_offensive_words_until_the_person_leaves(
    browser: Browser, served: Served
) -> None:
    best = served.household.keyboard("ada").suggest("we se").centre
    assert best is not None
    row = served.household.bundle.vocabulary.words.index(best.text)

    def call_the_best_offensive(route: Route) -> None:
        answer = route.fetch()
        described = answer.json()
        for version in described["versions"]:
            version |= {"never": [*version["never"], row], "offensive": [row]}
        route.fulfill(response=answer, json=described)

    context = browser.new_context(service_workers="block")  # it would pass the route by
    page = context.new_page()
    page.route("**/v1/keyboard", call_the_best_offensive)
    page.goto(served.url)
    _open(page, served, "ada")
    centre, box = page.locator("#strip [data-place=centre]"), page.locator("#offensive")

    _tap(page, "we se")
    expect(centre).not_to_have_text(best.text)
    box.check()
    expect(centre).to_have_text(best.text)
    page.reload()
    _open(page, served, "ada")
    expect(box).to_be_checked()
    page.locator("#leave").click()
    _open(page, served, "ada")
    expect(box).not_to_be_checked()
    context.close()
