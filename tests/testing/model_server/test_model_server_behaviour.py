"""The model server refuses, fails, records and ends as a provider's stand-in must."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from leporello.testing.model_server import WORDINGS, Failure, ModelServer, ReceivedRequest, Step, Use
from leporello.testing.model_server.script import from_mapping, read_script
from leporello.tokens import count_request

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello there, model"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
KEYS = {"openai": {"authorization": "Bearer k"}, "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01"}}
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once: a new one for each request takes longer than the request
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


@pytest.fixture(scope="module")
def shared() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def post(
    server: ModelServer, messages: Any = None, *, dialect: str = "openai", key: str = "k", **body: Any
) -> httpx2.Response:
    """Send a request by hand, as no client would."""
    name, value = ("x-api-key", key) if dialect == "anthropic" else ("authorization", f"Bearer {key}")
    sent = {"model": "m", "messages": HELLO if messages is None else messages, "max_tokens": 100, **body}
    headers = {name: value} if key else {}
    return httpx2.post(server.base_url + PATHS[dialect], json=sent, headers=headers, timeout=20, verify=NO_TLS)


def said(response: httpx2.Response) -> str:
    message: str = response.json()["choices"][0]["message"]["content"]
    return message


def called(call: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a history with this call and its result."""
    made = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "custom", **call}]}
    return [*HELLO, made, {"role": "tool", "tool_call_id": "c1", "content": "r"}]


INVALID: list[tuple[str, list[Any]]] = [
    ("no messages", []),
    ("a result without a call", [*HELLO, {"role": "tool", "tool_call_id": "c9", "content": "r"}]),
    ("a call without its result", [*HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}, *HELLO]),
    ("an unknown role", [{"role": "narrator", "content": "once"}]),
    ("a call of a custom tool without its input", called({"custom": {"name": "patch"}})),
    ("what is no message", ["hello"]),
]


@pytest.mark.parametrize(("name", "messages"), INVALID, ids=[name for name, _ in INVALID])
def test_an_invalid_sequence_is_refused(shared: ModelServer, name: str, messages: list[Any]) -> None:
    response = post(shared, messages)
    assert response.status_code == 400, name
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_valid_sequence_is_not_refused(shared: ModelServer) -> None:
    """Planted the other way round: the same call with its result is accepted."""
    result = {"role": "tool", "tool_call_id": "c1", "content": "r"}
    assert (
        post(shared, [*HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]).status_code == 200
    )


def test_a_call_of_a_custom_tool_is_not_refused(shared: ModelServer) -> None:
    assert post(shared, called({"custom": {"name": "patch", "input": "*** Begin"}})).status_code == 200


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r"}]}],
        [*HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, *HELLO],
        [{"role": "assistant", "content": "I begin"}],
    ],
)
def test_an_invalid_anthropic_sequence_is_refused(shared: ModelServer, messages: list[dict[str, Any]]) -> None:
    response = post(shared, messages, dialect="anthropic")
    assert (response.status_code, response.json()["type"]) == (400, "error")
    with anthropic.Anthropic(api_key="k", base_url=shared.anthropic_url, max_retries=0) as client:
        broken: Any = messages
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(model="m", max_tokens=9, messages=broken)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"model": "m"}', b'{"messages": 3}', b"\xff\xfe"])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_body_that_is_no_request_is_refused_and_recorded(shared: ModelServer, dialect: str, content: bytes) -> None:
    asked = len(shared.requests)
    response = httpx2.post(shared.base_url + PATHS[dialect], content=content, headers=KEYS[dialect], verify=NO_TLS)
    assert response.status_code == 400
    assert len(shared.requests) == asked + 1


@pytest.mark.parametrize("key", ["bad", ""])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_bad_key_is_refused(shared: ModelServer, dialect: str, key: str) -> None:
    assert post(shared, dialect=dialect, key=key).status_code == 401


def test_keys_can_be_chosen() -> None:
    with ModelServer(accepts_key=lambda key: key == "right") as server:
        assert post(server, key="right").status_code == 200
        assert post(server, key="wrong").status_code == 401


def test_an_unknown_model_is_refused() -> None:
    with ModelServer(models=["a"]) as server:
        assert post(server, model="a").status_code == 200
        assert post(server, model="b").status_code == 404


def test_the_window_holds_exactly_what_is_counted() -> None:
    tokens = count_request(HELLO)
    with ModelServer(window=tokens) as server:
        assert post(server).status_code == 200
    with ModelServer(window=tokens - 1) as server:
        assert post(server).status_code == 400


@pytest.mark.slow
@pytest.mark.parametrize("wording", sorted(WORDINGS))
def test_an_overflow_is_refused_in_the_chosen_words(wording: str) -> None:
    with ModelServer(window=10, wording=wording) as server:
        response = post(server, [{"role": "user", "content": "word " * 100}])
    assert response.status_code == WORDINGS[wording][0]
    assert WORDINGS[wording][1].split("{")[0][:20] in response.text


def test_a_refused_request_says_so_where_it_is_recorded() -> None:
    with ModelServer(window=10) as server:
        post(server, [{"role": "user", "content": "hi"}], max_tokens=1)
        post(server, [{"role": "narrator", "content": "once"}])
        post(server, [{"role": "user", "content": "word " * 100}])
        told = [one.refused.code if one.refused else None for one in server.requests]
    assert told[0] is None
    assert told[1] is not None
    assert told[2] == "context_length_exceeded"


def test_an_unknown_wording_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="use one of"):
        ModelServer(wording="klingon")


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_the_requested_answer_can_count_too(dialect: str) -> None:
    with ModelServer(window=100, reserves_output=True) as server:
        assert post(server, dialect=dialect, max_tokens=50).status_code == 200
        assert post(server, dialect=dialect, max_tokens=99).status_code == 400


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_an_answer_above_the_output_limit_is_refused(dialect: str) -> None:
    with ModelServer(output_limit=100) as server:
        assert post(server, dialect=dialect, max_tokens=100).status_code == 200
        response = post(server, dialect=dialect, max_tokens=101)
    assert response.status_code == 400
    assert "max_tokens" in response.text


def test_a_script_is_played_in_order_and_then_repeated_back() -> None:
    def count(request: ReceivedRequest) -> Step:
        return Step(text=f"{len(request.messages)} messages for {request.model}")

    with ModelServer(["one", Step(text="two"), {"text": "three"}, count]) as server:
        assert [said(post(server)) for _ in range(5)] == [
            "one",
            "two",
            "three",
            "1 messages for m",
            "Hello there, model",
        ]


def test_the_answer_after_the_script_can_be_chosen() -> None:
    with ModelServer(["one"], then="for ever") as server:
        assert [said(post(server)) for _ in range(3)] == ["one", "for ever", "for ever"]


def test_a_failure_uses_up_no_step() -> None:
    with ModelServer(["one", Failure.OVERLOADED, "two"]) as server:
        server.fail(Failure.RATE_LIMITED, times=2, retry_after=9)
        first, second = post(server), post(server)
        assert [first.status_code, second.status_code, first.headers["retry-after"]] == [429, 429, "9"]
        assert said(post(server)) == "one"
        assert post(server).status_code == 529
        assert said(post(server)) == "two"


@pytest.mark.slow
def test_a_slow_answer_is_the_scripts() -> None:
    with ModelServer(["one"]) as server:
        server.fail(Failure.DRIPPING, seconds=0.3)
        assert said(post(server)) == "one"


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_every_failure_can_be_ordered_for_streams_too(shared: ModelServer, dialect: str) -> None:
    """Whatever is ordered, the server answers the next request."""
    for failure in Failure:
        shared.fail(failure, seconds=0.1)
        try:
            post(shared, dialect=dialect, stream=True)
        except httpx2.TransportError:
            assert failure in {Failure.CLOSED_BEFORE_ANSWER, Failure.CLOSED_IN_ANSWER}
        assert post(shared, dialect=dialect).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure.CLOSED_BEFORE_ANSWER, openai.APIConnectionError),
        (Failure.CLOSED_IN_ANSWER, (openai.APIConnectionError, httpx2.TransportError)),
        (Failure.ERROR_IN_STREAM, openai.APIError),
        (Failure.MALFORMED_JSON, ValueError),
    ],
)
def test_a_broken_stream_breaks_the_official_client(
    shared: ModelServer, failure: Failure, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    shared.fail(failure)
    messages: Any = HELLO
    with openai.OpenAI(api_key="k", base_url=shared.openai_url, max_retries=0) as client, pytest.raises(error):
        list(client.chat.completions.create(model="m", messages=messages, stream=True))


@pytest.mark.parametrize(("dialect", "end"), [("openai", "[DONE]"), ("anthropic", "message_stop")])
def test_a_broken_stream_has_no_end_mark(shared: ModelServer, dialect: str, end: str) -> None:
    assert end in post(shared, dialect=dialect, stream=True).text
    shared.fail(Failure.BROKEN_STREAM)
    assert end not in post(shared, dialect=dialect, stream=True).text


def test_requests_are_recorded_without_keys(shared: ModelServer) -> None:
    post(shared, key="topsecret", temperature=0.5)
    post(shared, key="topsecret", dialect="anthropic", system="Be brief.")
    plain, other = shared.requests[-2:]
    assert "topsecret" not in repr(shared.requests)
    assert (plain.dialect, plain.path, plain.body["temperature"]) == ("openai", "/v1/chat/completions", 0.5)
    assert (other.dialect, other.messages[0]["role"], other.max_tokens) == ("anthropic", "system", 100)
    assert "user-agent" in plain.headers


def test_many_threads_at_once_are_all_recorded_and_get_one_step_each() -> None:
    steps = [f"answer {number}" for number in range(24)]
    with ModelServer(steps) as server, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: said(post(server)), steps))
        assert len(server.requests) == len(steps)
    assert sorted(answers) == sorted(steps)


def test_a_server_leaves_nothing_behind() -> None:
    """No thread, no open port, and no wait for a client that is still being served."""
    before = set(threading.enumerate())
    with ModelServer() as server:
        url = server.base_url
        server.fail(Failure.SLOW_START, seconds=600)
        waiting = threading.Thread(target=_ignore_errors, args=(server,))
        waiting.start()
        _until(lambda: bool(server.requests))
    waiting.join(20)
    assert not waiting.is_alive()
    assert set(threading.enumerate()) <= before
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert happened()


def _ignore_errors(server: ModelServer) -> None:
    try:
        post(server)
    except httpx2.TransportError:
        return


def test_a_server_can_be_started_again() -> None:
    server = ModelServer(["one", "two"])
    with server:
        assert said(post(server)) == "one"
    with server:
        assert said(post(server)) == "two"


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from leporello.testing.model_server.__main__ import main\n"
        "sys.exit(main([]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "'.[testing]'" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_only_this_machine_can_reach_it(shared: ModelServer) -> None:
    assert shared.base_url.startswith("http://127.0.0.1:")
    assert shared._socket.getsockname()[0] == "127.0.0.1"


def test_a_script_file_is_a_list_or_lines() -> None:
    as_list = '["hello", {"fail": "overloaded"}, {"text": "bye", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}]'
    as_lines = "\n".join(json.dumps(item) for item in json.loads(as_list))
    assert read_script(as_list) == read_script(as_lines)
    assert read_script(as_list)[2] == Step(text="bye", tool_calls=[Use(name="f", arguments={"a": 1})])


@pytest.mark.parametrize("item", [{"txt": "typo"}, {"fail": "no such failure"}, {"tool_calls": [{"nme": "f"}]}])
def test_a_wrong_step_is_an_error(item: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_mapping(item)


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["from the file"]')
    command = [sys.executable, "-m", "leporello.testing.model_server", "--script", str(script), "--window", "500"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        with openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
            answer = client.chat.completions.create(model="m", messages=HELLO)  # type: ignore[arg-type]
            assert answer.choices[0].message.content == "from the file"
            long: Any = [{"role": "user", "content": "word " * 2000}]
            with pytest.raises(openai.BadRequestError, match="maximum context length is 500"):
                client.chat.completions.create(model="m", messages=long)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, "not json", '[{"txt": "typo"}]'])
def test_the_command_says_what_is_wrong_with_a_script(tmp_path: Path, content: str | None) -> None:
    script = tmp_path / "script.json"
    if content is not None:
        script.write_text(content)
    command = [sys.executable, "-m", "leporello.testing.model_server", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "script.json" in done.stderr
    assert "Traceback" not in done.stderr
