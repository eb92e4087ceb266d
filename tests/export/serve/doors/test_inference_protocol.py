"""The Open Inference Protocol as a common client speaks it."""

import json
from pathlib import Path

import numpy as np
import pytest

from export.bundles.keyboard_bundle import load_bundle
from export.runtime.word_graph import NextWordGraph
from tests.export.conftest import WORDS
from tests.export.serve.running_server import RunningServer

INFER = "/v2/models/keyboard/infer"
TOKENS = {"name": "tokens", "shape": [2, 2], "datatype": "INT64", "data": [[1, 2], [3, 4]]}
TOP = {"name": "k", "shape": [1], "datatype": "INT64", "data": [3]}


def tensors(answer: dict[str, object]) -> dict[str, np.ndarray]:
    outputs = answer["outputs"]
    assert isinstance(outputs, list)
    return {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in outputs}


@pytest.mark.slow
def test_probes_need_no_token(server: RunningServer) -> None:
    assert server.get("/v2/health/live").json == {"live": True}
    assert server.get("/v2/health/ready").json == {"ready": True}
    assert server.get("/v2/models/keyboard/ready").status == 200
    assert server.get("/v2/models/other/ready").status == 404
    assert server.get("/v2").json["name"] == "sotto-serve"


@pytest.mark.slow
def test_metadata_name_the_graph_s_tensors(server: RunningServer, ann: str) -> None:
    described = server.get("/v2/models/keyboard", ann).json

    assert described["inputs"] == [
        {"name": "tokens", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "k", "datatype": "INT64", "shape": [1]},
        {"name": "state", "datatype": "FP32", "shape": [1, -1, 6]},
    ]
    outputs = described["outputs"]
    assert isinstance(outputs, list)
    assert [one["name"] for one in outputs] == [
        "words",
        "log_probabilities",
        "distribution",
        "next_state",
    ]


@pytest.mark.slow
def test_inference_is_the_graph_s_with_and_without_state(
    server: RunningServer, ann: str, bundles: dict[int, Path]
) -> None:
    graph = NextWordGraph(load_bundle(bundles[3]).graph)
    first = graph.step(np.array([[1, 2], [3, 4]]), graph.fresh_state(2), k=3)
    second = graph.step(np.array([[5], [6]]), first.state, k=3)

    answer = server.post(INFER, {"id": "x1", "inputs": [TOKENS, TOP]}, ann).json
    found = tensors(answer)
    state = {
        "name": "state",
        "shape": [1, 2, 6],
        "datatype": "FP32",
        "data": found["next_state"].ravel().tolist(),
    }
    more = {"name": "tokens", "shape": [2, 1], "datatype": "INT64", "data": [5, 6]}
    wanted = {"inputs": [state, TOP, more], "outputs": [{"name": "distribution"}]}
    later = tensors(server.post(INFER, wanted, ann).json)

    assert answer["id"] == "x1"
    assert str(answer["model_version"]).startswith("000003-")
    np.testing.assert_array_equal(found["words"], first.words)
    np.testing.assert_allclose(found["log_probabilities"], first.log_probabilities, rtol=1e-5)
    assert list(later) == ["distribution"]
    np.testing.assert_allclose(later["distribution"], second.distribution, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([], "must have 'tokens' as INT64"),
        ([TOKENS], "must have 'k' as INT64"),
        ([TOKENS | {"datatype": "FP32"}, TOP], "must have 'tokens' as INT64"),
        ([TOKENS | {"shape": [4]}, TOP], "shape [batch, time]"),
        ([TOKENS | {"shape": [3, 2]}, TOP], "fill the shape [3, 2]"),
        ([TOKENS | {"data": [1, 2, 3, 1.5]}, TOP], "INT64 numbers"),
        ([TOKENS | {"data": [1, 2, 3, True]}, TOP], "INT64 numbers"),
        ([TOKENS | {"data": [1, 2, 3, "4"]}, TOP], "INT64 numbers"),
        ([TOKENS | {"data": [1, 2, 3, 2**70]}, TOP], "INT64 numbers"),
        ([TOKENS | {"data": [[1, 2], [3]]}, TOP], "INT64 numbers"),
        ([TOKENS | {"data": [1, 2, 3, len(WORDS)]}, TOP], "tokens must be in [0, 19)"),
        ([TOKENS | {"data": [1, 2, 3, -1]}, TOP], "tokens must be in [0, 19)"),
        ([TOKENS | {"shape": [65, 1], "data": [1] * 65}, TOP], "at most 64 texts"),
        ([TOKENS | {"shape": [1, 4097], "data": [1] * 4097}, TOP], "4096 words"),
        ([TOKENS | {"shape": [0, 2], "data": []}, TOP], "got (0, 2)"),
        ([TOKENS, TOP | {"data": [0]}], "k must be in [1, 19]"),
        ([TOKENS, TOP | {"data": [20]}], "k must be in [1, 19]"),
        (
            [
                TOKENS,
                TOP,
                {"name": "state", "shape": [1, 1, 6], "datatype": "FP32", "data": [0] * 6},
            ],
            "'state' must be one of the state tensors ['state']",
        ),
        (
            [TOKENS, TOP, {"name": "personal.x", "shape": [1], "datatype": "FP32", "data": [0]}],
            "'personal.x' must be one of the state tensors",
        ),
    ],
)
def test_a_tensor_that_cannot_be_used_is_told_why(
    server: RunningServer, ann: str, inputs: list[object], told: str
) -> None:
    found = server.post(INFER, {"inputs": inputs}, ann)

    assert found.status == 422
    assert told in str(found.json["error"])


@pytest.mark.parametrize(
    ("value", "told"), [("NaN", "nan"), ("-Infinity", "-inf"), ("1e39", "1e+39"), ("-1e300", "-1")]
)
def test_a_state_that_is_no_float_is_refused_with_its_value(
    server: RunningServer, ann: str, value: str, told: str
) -> None:
    state = {"name": "state", "shape": [1, 2, 6], "datatype": "FP32", "data": [0] * 11 + ["X"]}
    body = json.dumps({"inputs": [TOKENS, TOP, state]}).replace('"X"', value)

    found = server.ask("POST", INFER, body.encode(), token=ann)

    assert found.status == 422
    assert "data of 'state' must be finite and at most 3.402823e+38" in str(found.json["error"])
    assert f"got {told}" in str(found.json["error"])


def test_a_state_of_which_nothing_follows_is_refused(server: RunningServer, ann: str) -> None:
    state = {"name": "state", "shape": [1, 2, 6], "datatype": "FP32", "data": [-3e38] * 12}

    found = server.post(INFER, {"inputs": [TOKENS, TOP, state]}, ann)

    assert found.status == 422
    assert "'distribution' would not be finite" in str(found.json["error"])


def test_uptime_checks_may_ask_by_head(server: RunningServer) -> None:
    for path in ("/", "/v2/health/live", "/v2/health/ready", "/v2/models/keyboard/ready"):
        asked, whole = server.ask("HEAD", path), server.get(path)

        assert (asked.status, asked.body) == (200, b"")
        for name in ("content-type", "content-length"):
            assert asked.headers[name] == whole.headers[name]
    assert server.ask("HEAD", "/page/absent.js").status == 404
    assert server.ask("HEAD", "/v1/next").status == 405


def test_unknown_models_versions_and_outputs_are_refused(server: RunningServer, ann: str) -> None:
    asked = {"inputs": [TOKENS, TOP]}

    voice = server.post("/v2/models/voice/infer", asked, ann)
    assert voice.status == 404
    assert "takes tensors is keyboard; a voice is asked at /v1/audio/speech" in str(voice.json)
    assert server.post("/v2/models/keyboard/versions/9/infer", asked, ann).status == 404
    wrong = server.post(INFER, asked | {"outputs": [{"name": "weights"}]}, ann)
    assert wrong.status == 422
    assert "outputs must be among" in str(wrong.json["error"])
