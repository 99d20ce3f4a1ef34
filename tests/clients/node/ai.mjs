/** The Vercel AI SDK (`ai` with `@ai-sdk/openai-compatible`). */

import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, streamText } from "ai";

import { eventually, runningSequences, servedModel, skip, url } from "./client.mjs";

const motet = createOpenAICompatible({ name: "motet", baseURL: `${url}/v1`, includeUsage: true });
const system = "You are a helpful assistant.";
const prompt = "Say hello and count to three.";

/** What every call here asks for. */
async function asked(more = {}) {
  const model = motet(await servedModel());
  return { model, system, prompt, temperature: 0, maxOutputTokens: 24, maxRetries: 0, ...more };
}

test("ai: a whole reply with its usage", { skip }, async () => {
  const { text, usage, finishReason, response } = await generateText(await asked());
  assert.ok(text.length > 0);
  assert.ok(usage.inputTokens > 10 && usage.outputTokens > 0 && usage.outputTokens <= 24);
  assert.ok(["stop", "length"].includes(finishReason), finishReason);
  assert.equal(response.modelId, await servedModel());
});

test("ai: a stream carries the same text, its usage and an end", { skip }, async () => {
  const whole = await generateText(await asked());
  const stream = streamText(await asked());
  const pieces = [];
  for await (const piece of stream.textStream) pieces.push(piece);
  assert.ok(pieces.length > 3);
  assert.equal(pieces.join(""), whole.text);
  assert.equal(await stream.finishReason, whole.finishReason);
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
});

test("ai: an abort ends the sequence", { skip }, async () => {
  const controller = new AbortController();
  const stream = streamText(await asked({ maxOutputTokens: 2000, abortSignal: controller.signal }));
  for await (const piece of stream.textStream) {
    if (piece) controller.abort();
  }
  await eventually(async () => (await runningSequences()) === 0, 20_000);
});

test("ai: a mistake is told with its status", { skip }, async () => {
  const call = generateText(await asked({ model: motet("no-such-model") }));
  await assert.rejects(call, (error) => {
    assert.ok(APICallError.isInstance(error));
    assert.equal(error.statusCode, 404);
    assert.match(error.message, /does not exist/);
    assert.equal(error.isRetryable, false);
    return true;
  });
});
