import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import { client, servedModel, skip } from "./client.mjs";

describe("models", { skip }, () => {
  it("lists, pages to an end and retrieves", async () => {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.ok(ids.length >= 1);
    const model = await client.models.retrieve(ids[0]);
    assert.equal(model.id, ids[0]);
    assert.equal(model.object, "model");
    assert.equal(typeof model.created, "number");
  });
});

describe("completions", { skip }, () => {
  let base;
  before(async () => {
    base = { model: await servedModel(), prompt: "The capital of France is", temperature: 0, max_tokens: 8 };
  });

  it("creates", async () => {
    const reply = await client.completions.create(base);
    assert.equal(reply.object, "text_completion");
    assert.ok(reply.choices[0].text.length > 0);
    assert.ok(reply.usage.completion_tokens <= 8);
  });

  it("streams the same text", async () => {
    const whole = (await client.completions.create(base)).choices[0];
    let text = "";
    let finish = null;
    for await (const { choices } of await client.completions.create({ ...base, stream: true })) {
      text += choices[0].text;
      finish = choices[0].finish_reason ?? finish;
    }
    assert.equal(text, whole.text);
    assert.equal(finish, whole.finish_reason);
  });

  it("takes token ids", async () => {
    const { choices, usage } = await client.completions.create({
      ...base,
      prompt: [504, 3575, 282, 4649, 314],
    });
    assert.equal(typeof choices[0].text, "string");
    assert.ok(usage.prompt_tokens >= 5);
  });
});
