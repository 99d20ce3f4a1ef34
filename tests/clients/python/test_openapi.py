"""`schemathesis` makes requests of the served OpenAPI document, good ones and bad ones, and checks the answers.

No answer may be the server's mistake, have a status or a body that is not described, or take what the document forbids.
"""

import os

import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)

import openai
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

MODEL = openai.OpenAI(base_url=f"{URL}/v1", api_key="none").models.list().data[0].id
load_all_checks()
NAMES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
EXAMPLES = int(os.environ.get("MOTET_EXAMPLES", "30"))

schema = schemathesis.openapi.from_url(f"{URL}/openapi.json")
schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described(case):
    if isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        # A model that exists, and replies short enough to wait for.
        if "model" in case.body and not case.path.endswith("/moderations"):
            case.body["model"] = MODEL
        if "messages" in case.body or "prompt" in case.body:
            case.body["max_tokens"] = min(case.body.get("max_tokens") or 4, 4)
    response = case.call(timeout=60)
    case.validate_response(response, checks=[CHECKS.get_one(name) for name in NAMES])
