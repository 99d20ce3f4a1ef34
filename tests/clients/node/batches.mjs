import assert from "node:assert/strict";
import { describe, it } from "node:test";
import OpenAI, { toFile } from "openai";
import { client, eventually, servedModel, skip } from "./client.mjs";

describe("files and batches", { skip }, () => {
  it("runs a batch from its file to its answers, and deletes", async () => {
    const model = await servedModel();
    const url = "/v1/chat/completions";
    const line = (name) => {
      const body = { model, messages: [{ role: "user", content: `Say ${name}.` }], max_tokens: 4 };
      return JSON.stringify({ custom_id: name, method: "POST", url, body });
    };
    const content = ["a", "b", "c"].map(line).join("\n");
    const file = await client.files.create({
      file: await toFile(Buffer.from(content), "in.jsonl"),
      purpose: "batch",
    });
    assert.equal(file.filename, "in.jsonl");
    const made = await client.batches.create({
      input_file_id: file.id,
      endpoint: url,
      completion_window: "24h",
    });
    let batch = made;
    await eventually(async () => {
      batch = await client.batches.retrieve(made.id);
      return batch.status === "completed";
    }, 120_000);
    assert.deepEqual(batch.request_counts, { total: 3, completed: 3, failed: 0 });
    const text = await (await client.files.content(batch.output_file_id)).text();
    const names = text.trimEnd().split("\n").map((answer) => JSON.parse(answer).custom_id);
    assert.deepEqual(names.sort(), ["a", "b", "c"]);

    const listed = [];
    for await (const entry of client.files.list({ limit: 1 })) listed.push(entry.id);
    assert.ok(listed.includes(file.id) && listed.includes(batch.output_file_id));
    assert.equal((await client.files.delete(file.id)).deleted, true);
    await assert.rejects(client.files.retrieve(file.id), OpenAI.NotFoundError);
  });
});
