import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import OpenAI from "openai";
import { client, servedModel, skip, url } from "./client.mjs";

const { BadRequestError, NotFoundError, APIConnectionError, APIConnectionTimeoutError, APIUserAbortError } =
  OpenAI;

/** What is wrong with the request, the class it must raise, and the parameter that must be named. */
const CASES = [
  {
    name: "an unknown model",
    change: { model: "no-such-model" },
    is: NotFoundError,
    param: "model",
    code: "model_not_found",
  },
  { name: "no messages", change: { messages: [] }, is: BadRequestError, param: "messages" },
  { name: "messages of the wrong type", change: { messages: "hi" }, is: BadRequestError, param: "messages" },
  { name: "temperature too high", change: { temperature: 2.5 }, is: BadRequestError, param: "temperature" },
  {
    name: "temperature of the wrong type",
    change: { temperature: "hot" },
    is: BadRequestError,
    param: "temperature",
  },
  { name: "top_p below 0", change: { top_p: -0.1 }, is: BadRequestError, param: "top_p" },
  { name: "no tokens asked for", change: { max_tokens: 0 }, is: BadRequestError, param: "max_tokens" },
  { name: "n of 0", change: { n: 0 }, is: BadRequestError, param: "n" },
  { name: "n of a million", change: { n: 1_000_000 }, is: BadRequestError, param: "n" },
  {
    name: "more tokens than the context",
    change: { max_tokens: 10_000_000 },
    is: BadRequestError,
    param: "max_tokens",
    code: "context_length_exceeded",
  },
  {
    name: "a prompt longer than the context",
    change: { messages: [{ role: "user", content: "word ".repeat(20_000) }] },
    is: BadRequestError,
    param: "messages",
    code: "context_length_exceeded",
  },
];

describe("errors", { skip }, () => {
  let base;
  before(async () => {
    base = { model: await servedModel(), messages: [{ role: "user", content: "hi" }], max_tokens: 4 };
  });

  for (const { name, change, is, param, code } of CASES) {
    for (const stream of [false, true]) {
      it(`${name}${stream ? ", streamed" : ""}`, async () => {
        const error = await client.chat.completions.create({ ...base, ...change, stream }).then(
          () => assert.fail("no error"),
          (error) => error,
        );
        assert.ok(error instanceof is, `${error.constructor.name}: ${error.message}`);
        if (param) assert.equal(error.param, param);
        if (code) assert.equal(error.code, code);
        assert.equal(error.type, "invalid_request_error");
        assert.ok(error.message.length > 10);
        assert.ok(error.requestID);
      });
    }
  }

  it("a model that isn't there", async () => {
    await assert.rejects(client.models.retrieve("owner/no such model"), NotFoundError);
  });

  it("no server, no time, no patience", async () => {
    const nowhere = new OpenAI({ baseURL: "http://127.0.0.1:9/v1", apiKey: "unused", maxRetries: 0 });
    await assert.rejects(nowhere.models.list(), APIConnectionError);
    const long = { ...base, messages: [{ role: "user", content: "Write a long story." }], max_tokens: 400 };
    await assert.rejects(client.chat.completions.create(long, { timeout: 1 }), APIConnectionTimeoutError);
    await assert.rejects(
      client.chat.completions.create(long, { signal: AbortSignal.abort() }),
      APIUserAbortError,
    );
  });

  it("has all four keys in the body", async () => {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{",
    });
    assert.equal(response.status, 400);
    const { error } = await response.json();
    assert.deepEqual(Object.keys(error).sort(), ["code", "message", "param", "type"]);
  });
});
