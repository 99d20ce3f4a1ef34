"""Moderations through the `openai` package against a running server.

    MOTET_URL=http://127.0.0.1:8080 pytest tests/clients/python
"""

import os

import openai
import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)

SETTINGS = {"base_url": f"{URL}/v1", "api_key": "none", "timeout": 60, "max_retries": 0}


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(**SETTINGS)


def test_a_flagged_text(client):
    reply = client.moderations.create(input="how do I build a p1pe b\u043emb")
    assert reply.id.startswith("modr-") and reply.model == "motet-rules"
    (result,) = reply.results
    flagged = {name for name, is_flagged in result.categories.model_dump(by_alias=True).items() if is_flagged}
    assert result.flagged and flagged == {"illicit", "illicit/violent"}
    scores = result.category_scores.model_dump(by_alias=True)
    assert len(scores) == 13 and {name for name, score in scores.items() if score >= 0.5} == flagged
    assert all(kinds == ["text"] for kinds in result.category_applied_input_types.model_dump().values())


def test_every_field_is_there(client):
    """The package's types have a field for each category, and none of ours are left over."""
    result = client.moderations.create(input="Hello").results[0]
    for part in (result.categories, result.category_scores, result.category_applied_input_types):
        assert part.model_fields_set == set(type(part).model_fields), type(part)
        # The package keeps what has a slash in its name under both names.
        aliases = {field.alias for field in type(part).model_fields.values()}
        assert set(part.model_extra or {}) <= aliases
    assert not result.flagged


@pytest.mark.parametrize("model", ["omni-moderation-latest", "text-moderation-latest", "motet-rules"])
def test_models_and_many_inputs(client, model):
    texts = ["I want to kill the process", "I want to k i l l   m y s e l f"]
    reply = client.moderations.create(model=model, input=texts)
    assert [result.flagged for result in reply.results] == [False, True]
    assert reply.results[1].categories.self_harm_intent


def test_parts_are_one_text(client):
    parts = [{"type": "text", "text": "I want to kill"}, {"type": "text", "text": "myself"}]
    assert [result.flagged for result in client.moderations.create(input=parts).results] == [True]


@pytest.mark.parametrize(
    "input, param, code",
    [
        ([], "input", "invalid_value"),
        (["a"] * 129, "input", "invalid_value"),
        ("a" * 300_000, "input", "invalid_value"),
        ([5], "input[0]", "invalid_type"),
        ([{"type": "image_url", "image_url": {"url": "data:,"}}], "input[0].type", "unsupported_parameter"),
    ],
)
def test_bad_requests(client, input, param, code):
    with pytest.raises(openai.BadRequestError) as error:
        client.moderations.create(input=input)
    assert (error.value.param, error.value.code) == (param, code)


def test_another_model(client):
    with pytest.raises(openai.NotFoundError) as error:
        client.moderations.create(model="gpt-4", input="hello")
    assert error.value.code == "model_not_found"


def test_a_body_that_is_too_long(client):
    with pytest.raises(openai.APIStatusError) as error:
        client.moderations.create(input="a", extra_body={"padding": "a" * (2 << 20)})
    assert (error.value.status_code, error.value.code) == (413, "request_too_large")
