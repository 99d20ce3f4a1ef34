"""The `llm` command against a running server, configured as its users do it."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest

URL = os.environ.get("MOTET_URL", "").rstrip("/")
if not URL:
    pytest.skip("MOTET_URL is not set", allow_module_level=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llm")
    with urllib.request.urlopen(f"{URL}/v1/models", timeout=10) as response:
        model = json.load(response)["data"][0]["id"]
    entry = f"- model_id: motet\n  model_name: {model}\n  api_base: {URL}/v1\n"
    (folder / "extra-openai-models.yaml").write_text(entry)
    variables = {**os.environ, "LLM_USER_PATH": str(folder)}

    def run(*arguments, text=None, fails=False):
        command = [sys.executable, "-m", "llm", *arguments]
        done = subprocess.run(command, input=text, env=variables, capture_output=True, text=True, timeout=120)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


OPTIONS = ("-m", "motet", "-o", "temperature", "0", "-o", "max_tokens", "16")


def test_a_prompt_streamed_and_whole(llm):
    streamed = llm("Say hello.", *OPTIONS)
    assert streamed.strip()
    assert llm("Say hello.", *OPTIONS, "--no-stream") == streamed


def test_text_from_a_pipe_and_a_system_prompt(llm):
    assert llm("-s", "Answer with one word.", *OPTIONS, text="What colour is the sky?").strip()


def test_a_conversation_goes_on_and_is_logged(llm):
    first = llm("Name a colour.", *OPTIONS)
    assert llm("-c", "And another.", *OPTIONS).strip()
    logged = json.loads(llm("logs", "--json", "-n", "2"))
    assert logged[0]["response"].strip() == first.strip()
    assert all(entry["input_tokens"] > 0 and entry["output_tokens"] > 0 for entry in logged)


def test_a_mistake_is_told(llm):
    told = llm("Hello", "-m", "motet", "-o", "max_tokens", "1000000", fails=True)
    assert "context length" in told
