import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import OpenAI from "openai";
import { client, eventually, runningSequences, servedModel, skip } from "./client.mjs";

const MESSAGES = [{ role: "user", content: "Name three colours." }];
const LONG = [{ role: "user", content: "Write a long story about a river, from the spring to the sea." }];

describe("chat completions", { skip }, () => {
  let base;
  before(async () => {
    base = { model: await servedModel(), messages: MESSAGES, temperature: 0, max_tokens: 24 };
  });

  it("creates", async () => {
    const reply = await client.chat.completions.create(base);
    assert.equal(reply.object, "chat.completion");
    assert.equal(reply.model, base.model);
    const [{ message, finish_reason, index }] = reply.choices;
    assert.equal(index, 0);
    assert.equal(message.role, "assistant");
    assert.ok(message.content.length > 0);
    assert.ok(["stop", "length"].includes(finish_reason));
    assert.ok(reply.usage.completion_tokens >= 1 && reply.usage.completion_tokens <= 24);
    assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
    assert.ok(reply._request_id);
  });

  it("streams the same text, with one envelope and usage at the end", async () => {
    const whole = await client.chat.completions.create(base);
    const stream = await client.chat.completions.create({
      ...base,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    assert.equal(new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`)).size, 1);
    assert.equal(chunks[0].choices[0].delta.role, "assistant");
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
    assert.equal(text, whole.choices[0].message.content);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
    assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
    assert.equal(chunks.at(-2).choices[0].finish_reason, whole.choices[0].finish_reason);
  });

  it("sends no usage that wasn't asked for", async () => {
    const stream = await client.chat.completions.create({ ...base, stream: true });
    for await (const chunk of stream) assert.equal(chunk.choices.length, 1);
  });

  it("works with the stream helper and its events", async () => {
    const stream = client.chat.completions.stream({ ...base, stream_options: { include_usage: true } });
    const seen = { content: "", chunks: 0, done: null };
    stream.on("content", (delta) => (seen.content += delta));
    stream.on("chunk", () => (seen.chunks += 1));
    stream.on("content.done", ({ content }) => (seen.done = content));
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, seen.content);
    assert.equal(seen.done, seen.content);
    assert.ok(seen.chunks > 2);
    assert.equal(await stream.finalContent(), seen.content);
    assert.ok((await stream.totalUsage()).completion_tokens >= 1);
  });

  it("aborts a stream, by the loop and by a signal, and frees the sequence", async () => {
    const request = { ...base, messages: LONG, max_tokens: 600, stream: true };
    const stream = await client.chat.completions.create(request);
    let count = 0;
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      if ((count += 1) === 5) break;
    }
    await eventually(async () => (await runningSequences()) === 0);

    const controller = new AbortController();
    const second = await client.chat.completions.create(request, { signal: controller.signal });
    for await (const chunk of second) {
      assert.ok(chunk.id);
      controller.abort();
    }
    await eventually(async () => (await runningSequences()) === 0);
  });

  it("aborts a request that isn't streamed", async () => {
    const controller = new AbortController();
    const pending = client.chat.completions.create(
      { ...base, messages: LONG, max_tokens: 600 },
      { signal: controller.signal },
    );
    const failed = assert.rejects(pending, OpenAI.APIUserAbortError);
    await eventually(async () => (await runningSequences()) > 0);
    controller.abort();
    await failed;
    await eventually(async () => (await runningSequences()) === 0);
  });

  it("stops before a stop string", async () => {
    const whole = (await client.chat.completions.create(base)).choices[0].message.content;
    const stop = whole.slice(4, 9);
    const { choices } = await client.chat.completions.create({ ...base, stop: [stop] });
    assert.equal(choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
    assert.equal(choices[0].finish_reason, "stop");
  });

  it("repeats a seeded reply", async () => {
    const request = { ...base, temperature: 1, seed: 7 };
    const replies = await Promise.all([1, 2].map(() => client.chat.completions.create(request)));
    assert.equal(replies[0].choices[0].message.content, replies[1].choices[0].message.content);
  });
});
