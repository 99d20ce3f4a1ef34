"""Keys and limits, as the `openai` package meets them.

    MOTET_ACCOUNTS_URL=… MOTET_KEYS="roomy=mk-… tight=mk-… pair=mk-… broke=mk-…" pytest tests/clients/python

The server has the tiers of `tests/clients/accounts.toml`.
"""

import asyncio
import os
import time

import openai
import pytest

URL = os.environ.get("MOTET_ACCOUNTS_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_ACCOUNTS_URL is not set", allow_module_level=True)
KEYS = dict(pair.split("=", 1) for pair in os.environ["MOTET_KEYS"].split())
MESSAGES = [{"role": "user", "content": "Say hello."}]


def client(tier, retries=0, kind=openai.OpenAI):
    return kind(base_url=f"{URL}/v1", api_key=KEYS.get(tier, tier), timeout=120, max_retries=retries)


@pytest.fixture(scope="module")
def request_body():
    model = client("roomy").models.list().data[0].id
    return {"model": model, "messages": MESSAGES, "max_tokens": 4, "temperature": 0}


@pytest.mark.parametrize("key", ["mk-0000000000000000000000000000000000000000000", "sk-other", "x"])
def test_a_key_that_is_none(key, request_body):
    for call in (lambda: client(key).models.list(), lambda: client(key).chat.completions.create(**request_body)):
        with pytest.raises(openai.AuthenticationError) as refused:
            call()
        assert refused.value.status_code == 401 and refused.value.code == "invalid_api_key"
        assert key not in str(refused.value.body)


@pytest.mark.parametrize("stream", [False, True])
def test_limits_are_told_with_every_reply(stream, request_body):
    create = client("roomy").chat.completions.with_raw_response.create
    before = create(**request_body, stream=stream)
    headers = before.headers
    body = before.parse()
    if stream:
        assert list(body)
    assert headers["x-request-id"]
    assert headers["x-ratelimit-limit-requests"] == "600" and headers["x-ratelimit-limit-tokens"] == "200000"
    assert 0 < int(headers["x-ratelimit-remaining-requests"]) < 600
    assert 0 < int(headers["x-ratelimit-remaining-tokens"]) < 200_000
    assert headers["x-ratelimit-reset-requests"][-1] == "s"


def test_who_waits_as_told_gets_through(request_body):
    """A tight account's tokens are used up; the package's own retries wait for `retry-after` and pass."""
    greedy = {**request_body, "max_tokens": 64, "messages": [{"role": "user", "content": "word " * 1_300}]}
    tight = client("tight")
    refused = None
    for _ in range(8):
        try:
            tight.chat.completions.create(**greedy)
        except openai.RateLimitError as error:
            refused = error
            break
    assert refused is not None and refused.code == "rate_limit_exceeded"
    wait = int(refused.response.headers["retry-after-ms"])
    assert 0 < wait <= 60_000 and "token" in refused.body["message"]
    began = time.monotonic()
    assert client("tight", retries=2).chat.completions.create(**greedy).choices
    assert time.monotonic() - began >= wait / 1000 * 0.5


def test_no_more_at_once_than_the_account_may(request_body):
    async def together():
        pair = client("pair", kind=openai.AsyncOpenAI)
        body = {**request_body, "max_tokens": 48, "extra_body": {"ignore_eos": True}}
        calls = [pair.chat.completions.create(**body) for _ in range(6)]
        return await asyncio.gather(*calls, return_exceptions=True)

    replies = asyncio.run(together())
    passed = [reply for reply in replies if not isinstance(reply, Exception)]
    refused = [reply for reply in replies if isinstance(reply, openai.RateLimitError)]
    assert len(passed) + len(refused) == 6 and 1 <= len(passed) <= 2
    assert all(int(error.response.headers["retry-after"]) >= 1 for error in refused)


def test_what_an_account_may_not_have(request_body):
    with pytest.raises(openai.BadRequestError, match="at most 64 tokens"):
        client("tight").chat.completions.create(**{**request_body, "max_tokens": 65})


def test_an_empty_budget_is_not_tried_again(request_body):
    broke = client("broke", retries=2)
    refused = None
    for _ in range(2):
        try:
            broke.chat.completions.create(**request_body)
        except openai.RateLimitError as error:
            refused = error
    assert refused is not None and refused.code == "insufficient_quota"
    assert refused.response.headers["x-should-retry"] == "false"
