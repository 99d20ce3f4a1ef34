"""`langchain-openai` against a running server."""

import asyncio
import os

import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

SETTINGS = {"base_url": f"{URL}/v1", "api_key": "none", "timeout": 120, "max_retries": 0}
MODEL = openai.OpenAI(**SETTINGS).models.list().data[0].id
MESSAGES = [SystemMessage("You are a helpful assistant."), HumanMessage("Say hello and count to three.")]


def chat(**settings):
    return ChatOpenAI(model=MODEL, temperature=0, max_tokens=24, **SETTINGS, **settings)


def test_a_reply_with_its_usage():
    reply = chat().invoke(MESSAGES)
    assert reply.content
    usage = reply.usage_metadata
    assert usage["input_tokens"] > 10 and 0 < usage["output_tokens"] <= 24
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert reply.response_metadata["finish_reason"] in ("stop", "length")
    assert reply.response_metadata["model_name"] == MODEL


def test_a_streamed_reply_is_the_same_text():
    whole = chat().invoke(MESSAGES)
    chunks = list(chat(stream_usage=True).stream(MESSAGES))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    sums = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert len(sums) == 1 and sums[0]["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_several_at_once():
    prompts = [[HumanMessage(f"Count to {n}.")] for n in range(2, 8)]
    alone = [chat().invoke(prompt).content for prompt in prompts]
    assert [reply.content for reply in chat().batch(prompts)] == alone

    async def together():
        return await asyncio.gather(*(chat().ainvoke(prompt) for prompt in prompts))

    assert [reply.content for reply in asyncio.run(together())] == alone


def test_a_conversation_goes_on():
    first = chat().invoke(MESSAGES)
    history = [*MESSAGES, AIMessage(first.content), HumanMessage("Again, please.")]
    assert chat().invoke(history).usage_metadata["input_tokens"] > first.usage_metadata["input_tokens"]


def test_log_probabilities():
    reply = chat(logprobs=True, top_logprobs=2).invoke(MESSAGES)
    tokens = reply.response_metadata["logprobs"]["content"]
    assert len(tokens) > 1 and all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_completions():
    text = OpenAI(model=MODEL, temperature=0, max_tokens=12, **SETTINGS).invoke("Once upon a time")
    assert text


def test_a_mistake_is_told():
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        ChatOpenAI(model="no-such-model", **SETTINGS).invoke(MESSAGES)
    with pytest.raises(openai.BadRequestError, match="context length"):
        chat().invoke([HumanMessage("word " * 20_000)])
