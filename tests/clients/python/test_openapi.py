"""`schemathesis` makes requests of the served OpenAPI document, good ones and bad ones, and checks the answers.

    MOTET_URL=… MOTET_ACCOUNTS_URL=… MOTET_KEYS="admin=mk-… …" MOTET_EXAMPLES=300 pytest test_openapi.py

No answer may be the server's mistake, have a status, a header or a body that is not described, or take what the document
forbids; nothing that needs a key may go without. Good requests are about things that exist: a model, and a file, a batch,
a key, a user made for them.
"""

import os
import secrets

import openai
import pytest
import requests

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)
ACCOUNTS_URL = os.environ.get("MOTET_ACCOUNTS_URL", "").rstrip("/")
KEYS = dict(pair.split("=", 1) for pair in os.environ.get("MOTET_KEYS", "").split())

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode

load_all_checks()
NAMES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "ignored_auth",
)
EXAMPLES = int(os.environ.get("MOTET_EXAMPLES", "6"))
# Each hashes a password, which takes a tenth of a second by design, or signs in for the request. Wrong passwords are
# throttled besides: more of them would only be told so.
COSTLY = ["signIn", "signOut", "changePassword", "createUser", "changeUser", "removeUser"]


class World:
    """What requests are about, on one server."""

    def __init__(self, url, key):
        self.url, self.headers = url, {"Authorization": f"Bearer {key}"}
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, timeout=60)
        models = self.client.models.list().data
        self.model, self.embedder = models[0].id, models[-1].id
        self.file = self.upload()

    def api(self, method, path, **body):
        answer = requests.request(method, self.url + path, json=body or None, headers=self.headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def upload(self):
        line = '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"none","prompt":"a"}}'
        return self.client.files.create(file=("in.jsonl", line.encode()), purpose="batch").id

    def batch(self):
        batches = self.client.batches
        return batches.create(input_file_id=self.file, endpoint="/v1/completions", completion_window="24h").id

    def user(self):
        return self.api("POST", "/api/users", login=f"made-{secrets.token_hex(8)}")

    def session(self):
        user = self.user()
        page = requests.Session()
        signed = page.post(f"{self.url}/api/session", json={name: user[name] for name in ("login", "password")})
        assert signed.status_code == 200, signed.text
        return {
            "Cookie": f"motet_session={page.cookies['motet_session']}",
            "x-csrf-token": signed.json()["csrf_token"],
        }

    def id(self, path):
        """Of something that the request may change or delete."""
        try:
            if path.startswith("/v1/files"):
                return self.upload()
            if path.startswith("/v1/batches"):
                return self.batch()
        except openai.RateLimitError:
            # As many as an account may have: the request is about one that does not exist.
            return None
        if path.startswith("/api/keys"):
            made = requests.post(self.url + "/api/keys", json={"name": "made"}, headers=self.headers, timeout=60)
            return made.json().get("id")
        return self.user()["id"] if path.startswith("/api/users") else None

    def make_real(self, case):
        """Lets a good request be about what exists, and be short enough to wait for."""
        body, path = case.body, case.operation.path
        if "{id}" in path and (made := self.id(path)):
            case.path_parameters["id"] = made
        if "{model}" in path:
            case.path_parameters["model"] = self.model
        if not isinstance(body, dict):
            return
        if "model" in body and path != "/v1/moderations":
            body["model"] = self.embedder if path == "/v1/embeddings" else self.model
        if "messages" in body or "prompt" in body:
            body["max_tokens"] = min(body.get("max_tokens") or 4, 4)
        if "input_file_id" in body:
            body["input_file_id"] = self.file


def check(world, case, headers):
    if case.meta.generation.mode.is_positive:
        world.make_real(case)
    response = case.call(timeout=60, headers=headers, allow_redirects=False)
    case.validate_response(response, headers=headers, checks=[CHECKS.get_one(name) for name in NAMES])


def lacks_credentials(case):
    """Whether what is wrong with a request is how it says who it is from."""
    meta = case.meta
    return any(meta.is_negative_at(place) for place in (ParameterLocation.COOKIE, ParameterLocation.HEADER))


def described(url):
    document = schemathesis.openapi.from_url(f"{url}/openapi.json")
    document.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    return document


def examples(count):
    quiet = list(HealthCheck)
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=quiet, database=None)


OPEN = described(URL)
OPEN_WORLD = World(URL, "none")


@OPEN.parametrize()
@examples(EXAMPLES)
def test_answers_are_as_described(case):
    check(OPEN_WORLD, case, OPEN_WORLD.headers)


if ACCOUNTS_URL:
    GUARDED = described(ACCOUNTS_URL)
    WORLD = World(ACCOUNTS_URL, KEYS["admin"])

    @GUARDED.exclude(operation_id=COSTLY).parametrize()
    @examples(EXAMPLES)
    def test_answers_with_accounts_are_as_described(case):
        check(WORLD, case, WORLD.headers)

    @GUARDED.include(operation_id=COSTLY).parametrize()
    @examples(max(EXAMPLES // 4, 3))
    def test_answers_about_people_are_as_described(case):
        if not case.operation.path.startswith("/api/session"):
            return check(WORLD, case, WORLD.headers)
        check(WORLD, case, None if lacks_credentials(case) else WORLD.session())
