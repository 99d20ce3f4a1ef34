import { describe, expect, it } from "vitest";
import { readEvents } from "./sse";

const encoder = new TextEncoder();

function streamOf(chunks: Uint8Array[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}

async function collect(chunks: Uint8Array[]): Promise<string[]> {
  const events: string[] = [];
  for await (const sent of readEvents(streamOf(chunks))) {
    events.push(sent.kind === "data" ? sent.data : `:${sent.text}`);
  }
  return events;
}

const CASES: { name: string; bytes: string; events: string[] }[] = [
  { name: "data-only events", bytes: "data: a\n\ndata: b\n\n", events: ["a", "b"] },
  { name: "CRLF line ends", bytes: "data: a\r\n\r\ndata: b\r\n\r\n", events: ["a", "b"] },
  { name: "comments", bytes: ": ping\n\ndata: a\n\n: ping\n\n", events: [":ping", "a", ":ping"] },
  { name: "no space after the colon", bytes: "data:a\n\n", events: ["a"] },
  { name: "several data lines", bytes: "data: a\ndata: b\n\n", events: ["a\nb"] },
  { name: "other fields", bytes: "id: 7\nevent: x\nretry: 10\ndata: a\n\n", events: ["a"] },
  { name: "the done mark", bytes: 'data: {"a":1}\n\ndata: [DONE]\n\n', events: ['{"a":1}', "[DONE]"] },
  { name: "characters of many bytes", bytes: "data: né 日本 👩‍👩‍👧\n\n", events: ["né 日本 👩‍👩‍👧"] },
  { name: "an end inside an event", bytes: "data: a\n\ndata: b\n", events: ["a"] },
  { name: "nothing", bytes: "", events: [] },
];

describe("readEvents", () => {
  for (const { name, bytes, events } of CASES) {
    it(`reads ${name}, cut at every byte`, async () => {
      const whole = encoder.encode(bytes);
      expect(await collect([whole])).toEqual(events);
      for (let at = 0; at <= whole.length; at += 1) {
        expect(await collect([whole.slice(0, at), whole.slice(at)]), `cut at ${at}`).toEqual(events);
      }
      expect(await collect(Array.from(whole, (byte) => Uint8Array.of(byte)))).toEqual(events);
    });
  }

  it("cancels the stream when the reader leaves early", async () => {
    let isCancelled = false;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(encoder.encode("data: a\n\ndata: b\n\n")),
      cancel: () => {
        isCancelled = true;
      },
    });
    for await (const sent of readEvents(body)) {
      expect(sent).toEqual({ kind: "data", data: "a" });
      break;
    }
    expect(isCancelled).toBe(true);
  });

  it("refuses an event without end", async () => {
    const flood = encoder.encode(`data: ${"x".repeat(5 * 1024 * 1024)}`);
    await expect(collect([flood])).rejects.toThrow();
  });
});
