"""Files and batches through the `openai` package.

    MOTET_URL=http://127.0.0.1:8080 pytest tests/clients/python
"""

import io
import json
import os
import time

import openai
import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)


@pytest.fixture(scope="module")
def client():
    return openai.OpenAI(base_url=f"{URL}/v1", api_key="none", timeout=120, max_retries=0)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def line(model, name, **more):
    body = {"model": model, "messages": [{"role": "user", "content": f"Say {name}."}], "max_tokens": 4, **more}
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})


def upload(client, *lines):
    content = io.BytesIO("\n".join(lines).encode())
    return client.files.create(file=("requests.jsonl", content), purpose="batch")


def batch(client, *lines, **more):
    file = upload(client, *lines)
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **more
    )


def ended(client, made, seconds=120):
    deadline = time.monotonic() + seconds
    while (now := client.batches.retrieve(made.id)).status not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < deadline, now
        time.sleep(0.1)
    return now


def test_a_batch_from_its_file_to_its_answers(client, model):
    lines = [line(model, f"n{n}") for n in range(5)]
    made = batch(client, *lines, line(model, "hot", temperature=9), metadata={"job": "nightly"})
    assert (made.object, made.status, made.metadata) == ("batch", "validating", {"job": "nightly"})
    done = ended(client, made)
    assert done.status == "completed"
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (6, 5, 1)
    assert made.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at < done.expires_at
    answers = [json.loads(text) for text in client.files.content(done.output_file_id).text.splitlines()]
    assert sorted(answer["custom_id"] for answer in answers) == [f"n{n}" for n in range(5)]
    for answer in answers:
        assert answer["error"] is None and answer["response"]["status_code"] == 200
        assert answer["response"]["request_id"]
        reply = openai.types.chat.ChatCompletion.model_validate(answer["response"]["body"])
        assert reply.choices[0].finish_reason in ("stop", "length")
    [failed] = client.files.content(done.error_file_id).text.splitlines()
    failed = json.loads(failed)
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("hot", 400)
    assert failed["response"]["body"]["error"]["param"] == "temperature"
    output = client.files.retrieve(done.output_file_id)
    assert (output.purpose, output.status) == ("batch_output", "processed")
    assert output.bytes == len(client.files.content(output.id).read())


def test_lists_page_to_their_end(client, model):
    files = [upload(client, line(model, f"{n}")).id for n in range(5)]
    found = [file.id for file in client.files.list(limit=2, order="asc", purpose="batch") if file.id in files]
    assert found == files
    found = [file.id for file in client.files.list(limit=1) if file.id in files]
    assert found == files[::-1]
    made = [batch(client, line(model, "x")).id for _ in range(3)]
    page = client.batches.list(limit=2)
    assert page.has_more and len(page.data) == 2
    assert [entry.id for entry in client.batches.list(limit=2) if entry.id in made] == made[::-1]
    for entry in made:
        assert ended(client, client.batches.retrieve(entry)).status == "completed"
    for file in files:
        gone = client.files.delete(file)
        assert (gone.id, gone.deleted) == (file, True)
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file)


def test_cancelling(client, model):
    made = batch(client, *[line(model, f"n{n}", max_tokens=64) for n in range(200)])
    assert client.batches.cancel(made.id).status == "cancelling"
    done = ended(client, made)
    assert done.status == "cancelled"
    assert done.request_counts.completed < 200
    with pytest.raises(openai.NotFoundError):
        client.batches.cancel("batch_none")


def test_an_input_that_is_wrong(client, model):
    done = ended(client, batch(client, line(model, "a"), line(model, "a"), "{"))
    assert done.status == "failed"
    assert [(problem.code, problem.line) for problem in done.errors.data] == [
        ("duplicate_custom_id", 2),
        ("invalid_json_line", 3),
    ]


def test_refusals(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("a.jsonl", b"{}"), purpose="fine-tune")
    assert (caught.value.param, caught.value.code) == ("purpose", "unsupported_parameter")
    with pytest.raises(openai.BadRequestError) as caught:
        client.batches.create(
            input_file_id="file-none", endpoint="/v1/chat/completions", completion_window="24h"
        )
    assert caught.value.param == "input_file_id"
