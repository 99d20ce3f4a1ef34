"""The `openai` package against a running server.

    MOTET_URL=http://127.0.0.1:8080 pytest tests/clients/python

Works with any model: nothing here depends on what it says, only on how the reply is carried.
"""

import asyncio
import json
import os
import time
import urllib.request

import openai
import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)

SETTINGS = {"base_url": f"{URL}/v1", "api_key": "none", "timeout": 120, "max_retries": 0}
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Say hello and count to three."},
]


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(**SETTINGS)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="module")
def ending(client, model):
    """A greedy reply that ends at a stop string, which the helpers of the package need: they raise at `length`."""
    request = {"model": model, "messages": MESSAGES, "max_tokens": 32, "temperature": 0}
    text = client.chat.completions.create(**request).choices[0].message.content
    stop = text[len(text) // 2 :][:3]
    assert stop
    return {**request, "stop": [stop]}, text[: text.index(stop)]


def metric(name):
    text = urllib.request.urlopen(f"{URL}/metrics", timeout=10).read().decode()
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    assert lines, f"{name} is not among the metrics"
    return sum(float(line.split()[-1]) for line in lines)


def until_idle(seconds=20):
    """The sequence of a client that left is gone at the next step; a scrape may come before that."""
    deadline = time.monotonic() + seconds
    states = ("running", "waiting", "preempted")
    while any(metric(f"motet_sequences_{state}") for state in states):
        assert time.monotonic() < deadline, "sequences are still running"
        time.sleep(0.05)


def test_models(client, model):
    page = client.models.list()
    # The model for embeddings comes last.
    assert [entry.id for entry in page][0] == model
    entry = client.models.retrieve(model)
    assert (entry.id, entry.object) == (model, "model")
    assert entry.created > 0


def test_chat(client, model):
    reply = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=12, temperature=0)
    choice = reply.choices[0]
    assert reply.object == "chat.completion"
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == model
    assert reply.system_fingerprint.startswith("fp_")
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert 0 < reply.usage.completion_tokens <= 12
    assert reply.usage.prompt_tokens > 10
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens_details.cached_tokens >= 0
    assert reply._request_id


def test_streamed_text_is_the_same(client, model):
    request = {"model": model, "messages": MESSAGES, "max_tokens": 24, "seed": 7}
    whole = client.chat.completions.create(**request)
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


def test_without_usage_there_is_no_usage_chunk(client, model):
    chunks = list(client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=4, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_stream_helper(client, ending):
    request, text = ending
    with client.chat.completions.stream(**request) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == text
    assert final.choices[0].finish_reason == "stop"
    assert final.id.startswith("chatcmpl-")


def test_async(ending):
    request, text = ending

    async def run():
        async with openai.AsyncOpenAI(**SETTINGS) as client:
            whole, stream = await asyncio.gather(
                client.chat.completions.create(**request),
                client.chat.completions.create(**request, stream=True),
            )
            streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert streamed == whole.choices[0].message.content == text

            async with client.chat.completions.stream(**request) as helper:
                final = await helper.get_final_completion()
            assert final.choices[0].message.content == text

    asyncio.run(run())


def test_many_at_once(model):
    async def run():
        async with openai.AsyncOpenAI(**SETTINGS) as client:
            request = {"model": model, "messages": MESSAGES, "max_tokens": 8, "seed": 3}
            replies = await asyncio.gather(*[client.chat.completions.create(**request) for _ in range(8)])
            assert len({reply.choices[0].message.content for reply in replies}) == 1
            assert len({reply.id for reply in replies}) == 8

    asyncio.run(run())


def test_cache_keys_and_tiers(client, model):
    request = {"model": model, "messages": MESSAGES, "max_tokens": 8, "seed": 3}
    plain = client.chat.completions.create(**request)
    assert plain.service_tier is None
    for key in ("a", "a", "b"):
        reply = client.chat.completions.create(**request, prompt_cache_key=key, service_tier="flex")
        assert reply.choices[0].message.content == plain.choices[0].message.content
        assert reply.usage.prompt_tokens == plain.usage.prompt_tokens
        assert 0 <= reply.usage.prompt_tokens_details.cached_tokens <= reply.usage.prompt_tokens
        assert reply.service_tier in ("default", "flex")


def test_choices_share_a_prompt(client, model):
    request = {"model": model, "messages": MESSAGES, "max_tokens": 4}
    one = client.chat.completions.create(**request)
    four = client.chat.completions.create(**request, n=4)
    assert four.usage.prompt_tokens == one.usage.prompt_tokens
    assert 4 <= four.usage.completion_tokens <= 16


def test_seeds(client, model):
    def text(**more):
        reply = client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=64, temperature=1.0, **more
        )
        return [choice.message.content for choice in reply.choices]

    assert text(seed=11) == text(seed=11)
    assert text(seed=-5) == text(seed=-5)
    three = text(seed=11, n=3)
    assert len(three) == 3
    assert three[0] == text(seed=11)[0]
    assert len({text(seed=seed)[0] for seed in range(4)}) > 1


def test_messages_come_back(client, model):
    reply = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=4)
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
        reply.choices[0].message,
        {"role": "user", "content": "Go on.", "name": "ada"},
    ]
    again = client.chat.completions.create(model=model, messages=history, max_completion_tokens=4)
    assert again.usage.completion_tokens <= 4


def test_logprobs(client, model):
    request = {"model": model, "messages": MESSAGES, "max_tokens": 6, "temperature": 0}
    reply = client.chat.completions.create(**request, logprobs=True, top_logprobs=3)
    choice = reply.choices[0]
    assert all(len(entry.top_logprobs) == 3 for entry in choice.logprobs.content)
    joined = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
    assert joined.decode(errors="replace") == choice.message.content
    without = client.chat.completions.create(**request)
    assert without.choices[0].logprobs is None
    assert without.choices[0].message.content == choice.message.content


def test_completions(client, model):
    reply = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=1)
    choice = reply.choices[0]
    assert (reply.object, choice.index) == ("text_completion", 0)
    assert choice.text
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == len(choice.logprobs.text_offset)
    stream = client.completions.create(
        model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == choice.text
    both = client.completions.create(model=model, prompt=["Once upon a time", "The sea"], max_tokens=8, temperature=0)
    assert [entry.index for entry in both.choices] == [0, 1]
    assert both.choices[0].text == choice.text
    tokens = client.completions.create(model=model, prompt=[[1, 2, 3], [4]], max_tokens=2)
    assert tokens.usage.prompt_tokens == 4


def test_stop_strings(client, ending):
    request, text = ending
    reply = client.chat.completions.create(**request)
    assert reply.choices[0].message.content == text
    assert reply.choices[0].finish_reason == "stop"
    chunks = client.chat.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    until_idle()


def test_leaving_early_frees_the_sequence(client, model):
    request = {"model": model, "messages": MESSAGES, "extra_body": {"ignore_eos": True}}
    cancelled = metric("motet_sequences_cancelled_total")
    stream = client.chat.completions.create(**request, stream=True)
    for _, chunk in zip(range(3), stream):
        assert chunk.choices
    stream.close()
    until_idle()
    assert metric("motet_sequences_cancelled_total") > cancelled

    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(**request)
    until_idle()


@pytest.mark.parametrize(
    "extra, param, code",
    [
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"n": 9}, "n", "invalid_value"),
        ({"prompt_cache_key": "k" * 300}, "prompt_cache_key", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"stop": ["a"] * 5}, "stop", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "banana", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_parameter"),
        ({"logit_bias": {"1": 5}}, "logit_bias", "unsupported_parameter"),
        ({"presence_penalty": 1}, "presence_penalty", "unsupported_parameter"),
        ({"max_tokens": 10**9}, "max_tokens", "context_length_exceeded"),
        ({"max_completion_tokens": 10**9}, "max_completion_tokens", "context_length_exceeded"),
        ({"max_tokens": 10**30}, "max_tokens", "invalid_value"),
    ],
)
def test_bad_requests(client, model, extra, param, code):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": model, "messages": MESSAGES, **extra})
    error = caught.value
    assert (error.status_code, error.param, error.code) == (400, param, code)
    assert error.type == "invalid_request_error"
    assert error.request_id


def test_context_length(client, model):
    messages = [{"role": "user", "content": "word " * 200_000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=messages, stream=True)
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length" in caught.value.message


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no/such-model")


def test_a_base_address_without_v1(model):
    with openai.OpenAI(**{**SETTINGS, "base_url": URL}) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.list()
        assert caught.value.code == "unknown_url"
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model=model, messages=MESSAGES)
        assert "/v1/chat/completions" in caught.value.message


def test_tool_calls_in_the_history(client, model):
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "42"}]},
        {"role": "user", "content": "Go on."},
    ]
    reply = client.chat.completions.create(model=model, messages=messages, max_tokens=4)
    assert reply.choices[0].finish_reason in ("stop", "length")


def test_bodies_over_the_limit(client, model):
    messages = [{"role": "user", "content": "x" * (8 << 20)}]
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model=model, messages=messages)
    assert caught.value.status_code == 413
    assert caught.value.code == "request_too_large"


def test_health():
    for path in ("/healthz", "/readyz"):
        with urllib.request.urlopen(f"{URL}{path}", timeout=10) as response:
            assert response.status == 200
            assert json.load(response)["state"] == "ready"
