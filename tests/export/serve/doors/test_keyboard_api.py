import concurrent.futures
import json
from pathlib import Path

import pytest

from export.bundles.keyboard_bundle import load_bundle
from export.runtime.next_word import NextWords
from export.runtime.strip import Keyboard
from export.runtime.word_graph import NextWordGraph
from tests.export.serve.conftest import new_client
from tests.export.serve.running_server import RunningServer, token_of
from tests.waiting import until


@pytest.fixture(scope="module")
def keyboard(bundles: dict[int, Path]) -> NextWords:
    bundle = load_bundle(bundles[3])
    return NextWords(NextWordGraph(bundle.graph), bundle.vocabulary)


@pytest.mark.parametrize("text", ["", "I see ", "I s", "we go. ", "12", "see you th"])
def test_suggestions_are_those_of_the_library(
    server: RunningServer, ann: str, keyboard: NextWords, text: str
) -> None:
    found = server.next(ann, text)

    expected = keyboard.suggest(text)
    assert found.status == 200
    assert found.words == [suggestion.word for suggestion in expected]
    shown = found.json["suggestions"]
    assert isinstance(shown, list)
    assert [word["probability"] for word in shown] == pytest.approx(
        [suggestion.probability for suggestion in expected], rel=1e-4
    )


@pytest.mark.parametrize("text", ["", "I s", "we teh", "Teh", "we TEH", "I dont", "seethe", "cafe"])
@pytest.mark.parametrize("kept_words", [(), ("Teh", "dont")])
def test_the_strip_is_the_library_s_and_so_are_its_corrections(
    server: RunningServer, ann: str, bundles: dict[int, Path], text: str, kept_words: tuple[str]
) -> None:
    bundle = load_bundle(bundles[3])
    graph, languages = NextWordGraph(bundle.graph), bundle.manifest.languages
    native = Keyboard(graph, bundle.vocabulary, languages=languages)
    for word in kept_words:
        native.keep(word, incognito=True)

    found = server.next(ann, text, kept_words=kept_words).json["strip"]

    expected = vars(native.suggest(text))
    assert found == {place: slot and vars(slot) for place, slot in expected.items()}


def test_more_words_to_keep_than_a_thousand_are_refused(server: RunningServer, ann: str) -> None:
    assert server.next(ann, "a", kept_words=["a"] * 1000).status == 200
    assert server.next(ann, "a", kept_words=["a"] * 1001).status == 422


@pytest.mark.parametrize(
    "text",
    [
        "\x00\x01\x1b[31m\x7f",
        "\ud7ff\ufffe\U0010ffff",
        "привет как ",
        "你好，世界",
        "مرحبا بك ",
        "नमस्ते दु",
        "👩‍👩‍👧 ",
        "\u202egnp.exe ",
        "e\u0301" * 500,
        "a" * 1_000_000,
        "go " * 340_000,
    ],
)
def test_any_text_gets_an_answer(
    server: RunningServer, ann: str, keyboard: NextWords, text: str
) -> None:
    body = json.dumps({"text": text}, ensure_ascii=False).encode()

    found = server.ask("POST", "/v1/next", body, token=ann)

    assert found.status == 200
    assert found.words == [suggestion.word for suggestion in keyboard.suggest(text)]


def test_half_a_surrogate_is_refused_or_answered_but_never_an_error_of_the_server(
    server: RunningServer, ann: str
) -> None:
    found = server.ask("POST", "/v1/next", b'{"text": "go \\ud800"}', token=ann)

    assert found.status in (200, 422)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "body: Field required"),
        (b"{", "JSON"),
        (b"\xff\xfe", ""),
        (b"[]", "body"),
        (b"{}", "body.text: Field required"),
        (b'{"text": 5}', "body.text: Input should be a valid string"),
        (b'{"text": null}', "body.text"),
        (b'{"text": "a", "count": 0}', "body.count: Input should be greater than or equal to 1"),
        (b'{"text": "a", "count": 11}', "less than or equal to 10"),
        (b'{"text": "a", "count": "3"}', "body.count"),
        (b'{"text": "a", "client": "bob"}', "body.client: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_request_is_told_which_rule_it_breaks(
    server: RunningServer, ann: str, body: bytes, told: str
) -> None:
    found = server.ask("POST", "/v1/next", body, token=ann)

    assert found.status in (400, 422)
    error = found.json["error"]
    assert isinstance(error, dict)
    assert told in error["message"]


def test_no_answer_and_no_log_repeats_a_text(server: RunningServer, ann: str) -> None:
    secret = "quetzalcoatlus"

    bodies = [
        {"text": [secret]},
        {"text": "a", secret: 1},
        {"text": "a", "version": 5, "count": secret},
    ]
    answers = [server.post("/v1/next", body, ann) for body in bodies]
    server.next(ann, secret * 3)
    server.get(f"/{secret}?text={secret}")

    assert all(answer.status == 422 for answer in answers)
    assert all(secret.encode() not in answer.body for answer in (answers[0], answers[2]))
    assert secret not in server.log.read_text()
    assert secret not in server.metrics()


@pytest.mark.parametrize("token", [None, "", "wrong", "sotto_" + "A" * 43, "é"])
def test_without_a_client_s_token_nothing_is_answered(
    server: RunningServer, token: str | None
) -> None:
    for path, body in (("/v1/next", {"text": "a"}), ("/v2/models/keyboard/infer", {"inputs": []})):
        found = server.post(path, body, token)

        assert found.status == 401
        assert found.headers["www-authenticate"] == "Bearer"
        assert b"sotto-serve token" in found.body


def test_the_versions_that_are_served_can_be_asked_for_and_no_others(
    server: RunningServer, ann: str
) -> None:
    version = str(server.next(ann, "").json["version"])

    assert version.startswith("000003-")
    assert server.next(ann, "", version=version).status == 200
    for other in ("000004-000000000000", "../..", ""):
        refused = server.next(ann, "", version=other)
        assert refused.status == 404
        assert version.encode() in refused.body


def test_an_answer_bears_its_request_s_id(server: RunningServer, ann: str) -> None:
    body = b'{"text": ""}'

    given = server.ask("POST", "/v1/next", body, token=ann, headers={"X-Request-Id": "abc-1"})
    forged = server.ask("POST", "/v1/next", body, token=ann, headers={"X-Request-Id": "a b<c>"})
    refused = server.ask("POST", "/v1/next", body, headers={"X-Request-Id": "abc-2"})

    assert given.headers["x-request-id"] == "abc-1"
    assert len(forged.headers["x-request-id"]) == 16
    assert refused.json["error"] == {
        "code": "wrong_token",
        "message": "the bearer token is missing or nobody's; get one with `sotto-serve token`, "
        "give it as Authorization: Bearer TOKEN",
        "request_id": "abc-2",
    }


@pytest.mark.slow
def test_many_clients_at_once_get_their_own_text_s_words(
    server: RunningServer, ann: str, keyboard: NextWords
) -> None:
    clients = [ann, *(new_client(server, f"many-{number}") for number in range(4))]
    texts = ["I s", "we go ", "the s", "see you th", "you g"]

    def ask(number: int) -> bool:
        at = number % len(texts)
        found = server.next(clients[at], texts[at])
        return found.status == 200 and found.words == expected[texts[at]]

    expected = {text: [word.word for word in keyboard.suggest(text)] for text in texts}
    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        assert all(threads.map(ask, range(1_000)))


def test_what_is_incognito_is_not_carried(server: RunningServer) -> None:
    token = new_client(server, "private")  # this asked once, and its text is carried
    before = server.metric("sotto_texts")

    server.next(token, "we see ", incognito=True)
    hidden = new_client_without_asking(server, "hidden")
    found = server.next(hidden, "we see ", incognito=True)

    assert found.status == 200
    assert server.metric("sotto_texts") == before


def new_client_without_asking(server: RunningServer, client: str) -> str:
    token = token_of(server.folder, client)
    until(lambda: server.get("/v2/models/keyboard", token).status == 200)
    return token


def test_no_torch_is_in_the_process(server: RunningServer, ann: str) -> None:
    assert server.next(ann, "we ").status == 200

    mapped = Path(f"/proc/{server.process.pid}/maps").read_text()

    assert "onnxruntime" in mapped
    assert "torch" not in mapped


def test_the_page_of_routes_needs_no_other_host(server: RunningServer) -> None:
    page = server.get("/docs").body.decode()

    assert "POST /v1/next" in page
    assert "/v2/models/{model}/infer" in page
    assert "everything typed so far" in page
    assert "<script" not in page
    assert "http" not in page.replace("https://json-schema.org", "")
    assert set(json.loads(server.get("/openapi.json").body)["paths"]) >= {"/v1/next"}
