"""Embeddings through the `openai` package against a running server with an embedding model.

    MOTET_URL=http://127.0.0.1:8080 pytest tests/clients/python

The model is the last of the list; nothing here depends on what its vectors mean.
"""

import asyncio
import base64
import math
import os
import struct

import openai
import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)

SETTINGS = {"base_url": f"{URL}/v1", "api_key": "none", "timeout": 120, "max_retries": 0}
TEXTS = ["The cat", "Dogs!", "the cat", "a world of cats and dogs " * 4]


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(**SETTINGS)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[-1].id


def test_one_text(client, model):
    reply = client.embeddings.create(model=model, input="The cat")
    assert (reply.object, reply.model, len(reply.data)) == ("list", model, 1)
    assert (reply.data[0].object, reply.data[0].index) == ("embedding", 0)
    assert math.isclose(math.hypot(*reply.data[0].embedding), 1, rel_tol=1e-5)
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > 2


def test_base64_is_the_default_and_equals_floats(client, model):
    """The package asks for base64 and unpacks it; asked for by name, it hands the text on."""
    unpacked = client.embeddings.create(model=model, input=TEXTS).data
    floats = client.embeddings.create(model=model, input=TEXTS, encoding_format="float").data
    packed = client.embeddings.create(model=model, input=TEXTS, encoding_format="base64").data
    for one, other, text in zip(unpacked, floats, packed):
        raw = base64.b64decode(text.embedding)
        numbers = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        assert list(one.embedding) == numbers
        assert [struct.unpack("f", struct.pack("f", v))[0] for v in other.embedding] == numbers
        assert one.index == other.index == text.index


def test_the_same_vector_in_any_company(client, model):
    together = [e.embedding for e in client.embeddings.create(model=model, input=TEXTS).data]
    alone = [client.embeddings.create(model=model, input=text).data[0].embedding for text in TEXTS]
    assert together == alone
    assert together[0] == together[2], "the tokenizer makes lower case"


def test_many_at_once(model):
    async def all_of_them():
        async with openai.AsyncOpenAI(**SETTINGS) as client:
            lists = [TEXTS[i % 4 :] + [f"text {i}"] for i in range(16)]
            replies = await asyncio.gather(*(client.embeddings.create(model=model, input=list_) for list_ in lists))
            return lists, replies

    lists, replies = asyncio.run(all_of_them())
    seen = {}
    for texts, reply in zip(lists, replies):
        for text, item in zip(texts, reply.data, strict=True):
            assert seen.setdefault(text, item.embedding) == item.embedding


def test_token_ids(client, model):
    one = client.embeddings.create(model=model, input=[2, 7, 8, 3])
    two = client.embeddings.create(model=model, input=[[2, 7, 8, 3], [2, 3]])
    assert one.data[0].embedding == two.data[0].embedding
    assert (one.usage.prompt_tokens, two.usage.prompt_tokens) == (4, 6)


def test_2048_inputs(client, model):
    reply = client.embeddings.create(model=model, input=["a"] * 2048)
    assert [item.index for item in reply.data] == list(range(2048))


@pytest.mark.parametrize(
    "change, param, code",
    [
        ({"input": ""}, "input", "invalid_value"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": ["a"] * 2049}, "input", "invalid_value"),
        ({"input": ["a", "b " * 5000]}, "input[1]", "context_length_exceeded"),
        ({"input": [10**6]}, "input[0]", "invalid_value"),
        ({"dimensions": 1}, "dimensions", "invalid_value"),
        ({"encoding_format": "hex"}, "encoding_format", "invalid_value"),
    ],
)
def test_bad_requests(client, model, change, param, code):
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(**{"model": model, "input": "hello", **change})
    assert (error.value.param, error.value.code) == (param, code)


def test_a_model_that_makes_none(client, model):
    chat = client.models.list().data[0].id
    for name in ["nobody", chat] if chat != model else ["nobody"]:
        with pytest.raises(openai.NotFoundError) as error:
            client.embeddings.create(model=name, input="hello")
        assert error.value.code == "model_not_found" and model in error.value.message
