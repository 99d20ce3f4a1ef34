import { describe, expect, it } from "vitest";
import { createApi, type ReplyEvent } from "./client";
import { ReplyFailure, type FailureKind } from "./failure";

const REQUEST = { model: "m", messages: [{ role: "user" as const, content: "hi" }] };

function sse(...data: (object | string)[]): string {
  return data.map((item) => `data: ${typeof item === "string" ? item : JSON.stringify(item)}\n\n`).join("");
}

function delta(content: string, finish_reason: string | null = null) {
  return { choices: [{ index: 0, delta: { content }, logprobs: null, finish_reason }], usage: null };
}

const USAGE = {
  choices: [],
  usage: {
    prompt_tokens: 5,
    completion_tokens: 2,
    total_tokens: 7,
    prompt_tokens_details: { cached_tokens: 3 },
  },
};

async function run(response: Response | Error, silenceMs?: number) {
  const sent: { path: string; body: unknown }[] = [];
  const fetcher = (path: unknown, init?: RequestInit) => {
    sent.push({ path: String(path), body: JSON.parse(String(init?.body ?? "null")) });
    return response instanceof Error ? Promise.reject(response) : Promise.resolve(response);
  };
  const events: ReplyEvent[] = [];
  let kind: FailureKind | null = null;
  let failure = null;
  try {
    const api = createApi(fetcher as typeof fetch, silenceMs);
    for await (const event of api.reply(REQUEST, new AbortController().signal)) events.push(event);
  } catch (error) {
    if (!(error instanceof ReplyFailure)) throw error;
    failure = error.failure;
    kind = failure.kind;
  }
  const text = events.map((event) => (event.kind === "text" ? event.text : "")).join("");
  return { events, text, kind, failure, sent };
}

describe("reply", () => {
  it("yields text, finish and usage, and ends at the done mark", async () => {
    const body = sse(delta(""), delta("a"), delta("b"), delta("", "stop"), USAGE, "[DONE]");
    const { events, kind } = await run(new Response(body));
    expect(kind).toBeNull();
    expect(events).toEqual([
      { kind: "text", text: "a" },
      { kind: "text", text: "b" },
      { kind: "finish", reason: "stop" },
      { kind: "usage", usage: { promptTokens: 5, completionTokens: 2, cachedTokens: 3 } },
    ]);
  });

  it("asks for a stream with usage and the page's sampling", async () => {
    const { sent } = await run(new Response(sse("[DONE]")));
    expect(sent).toEqual([
      {
        path: "/v1/chat/completions",
        body: {
          ...REQUEST,
          temperature: 0.2,
          top_p: 0.9,
          stream: true,
          stream_options: { include_usage: true },
        },
      },
    ]);
  });

  const error = (code: string | null) =>
    JSON.stringify({ error: { message: "Why.", type: "t", param: null, code } });
  const cases: { name: string; response: Response | Error; kind: FailureKind; text?: string }[] = [
    { name: "no server", response: new TypeError("fetch failed"), kind: "unreachable" },
    {
      name: "no done mark",
      response: new Response(sse(delta("a"), delta("", "stop"))),
      kind: "cut",
      text: "a",
    },
    { name: "nothing at all", response: new Response(""), kind: "cut" },
    { name: "a page instead of a stream", response: new Response("<html>"), kind: "cut" },
    { name: "a broken chunk", response: new Response(sse(delta("a"), "{oops")), kind: "cut", text: "a" },
    {
      name: "an error in the stream",
      response: new Response(sse(delta("a"), { error: { message: "Why.", code: null } })),
      kind: "broken",
      text: "a",
    },
    { name: "loading", response: new Response(error("model_loading"), { status: 503 }), kind: "loading" },
    {
      name: "a broken engine",
      response: new Response(error("engine_down"), { status: 503 }),
      kind: "server",
    },
    {
      name: "overload",
      response: new Response(error("server_is_overloaded"), { status: 503 }),
      kind: "busy",
    },
    {
      name: "rate limit",
      response: new Response(error("rate_limit_exceeded"), { status: 429 }),
      kind: "busy",
    },
    {
      name: "a budget that is used up",
      response: new Response(error("insufficient_quota"), { status: 429 }),
      kind: "quota",
    },
    {
      name: "a session that ended",
      response: new Response(error("invalid_api_key"), { status: 401 }),
      kind: "signed_out",
    },
    {
      name: "too long a prompt",
      response: new Response(error("context_length_exceeded"), { status: 400 }),
      kind: "too_long",
    },
    { name: "too large a body", response: new Response("", { status: 413 }), kind: "too_long" },
    { name: "a bad request", response: new Response(error(null), { status: 400 }), kind: "refused" },
    { name: "a proxy's page", response: new Response("<html>bad gateway", { status: 502 }), kind: "server" },
  ];
  for (const { name, response, kind, text = "" } of cases) {
    it(`fails as ${kind} on ${name}`, async () => {
      const result = await run(response);
      expect(result.kind).toBe(kind);
      expect(result.text).toBe(text);
      expect(result.failure?.advice).not.toBe("");
    });
  }

  it("keeps the retry time and the request id", async () => {
    const headers = { "retry-after": "7", "x-request-id": "req-1" };
    const { failure } = await run(new Response(error("server_is_overloaded"), { status: 503, headers }));
    expect(failure).toMatchObject({
      retryAfterMs: 7000,
      requestId: "req-1",
      advice: "It asked to wait 7 s.",
    });
  });

  it("gives up on a silent stream", async () => {
    const silent = (signal?: AbortSignal | null) =>
      new Response(
        new ReadableStream({ start: (c) => signal?.addEventListener("abort", () => c.error(signal.reason)) }),
      );
    const fetcher = (_: unknown, init?: RequestInit) => Promise.resolve(silent(init?.signal));
    const api = createApi(fetcher as typeof fetch, 20);
    const reading = api.reply(REQUEST, new AbortController().signal).next();
    await expect(reading).rejects.toMatchObject({ failure: { kind: "cut" } });
  });

  it("throws the abort, not a failure, when the caller aborts", async () => {
    const controller = new AbortController();
    const fetcher = () => {
      controller.abort();
      return Promise.reject(new TypeError("aborted"));
    };
    const reading = createApi(fetcher as typeof fetch)
      .reply(REQUEST, controller.signal)
      .next();
    await expect(reading).rejects.toMatchObject({ name: "AbortError" });
  });
});

describe("the server's words about a reply", () => {
  it("come from headers and comments", async () => {
    const headers = {
      "x-motet-model": "lab/caf%C3%A9",
      "x-motet-model-reason": "role:fast",
      "x-motet-degraded": "shorten-output;max-tokens=512, queue-with-eta",
    };
    const body = `: keep-alive\n\n: motet {"notice":{"queue":{"position":3,"eta_seconds":12}}}\n\n${sse("[DONE]")}`;
    const { events } = await run(new Response(body, { headers }));
    expect(events).toEqual([
      { kind: "served", model: "lab/café", reason: "role:fast" },
      { kind: "notice", notice: { degraded: ["shorten-output", "queue-with-eta"], maxTokens: 512 } },
      { kind: "notice", notice: { queue: { position: 3, etaSeconds: 12 } } },
    ]);
  });
});

describe("models", () => {
  const details = { description: "Code", roles: ["fast"] };
  const cases: { body: unknown; ids: string[] }[] = [
    { body: { object: "list", data: [{ id: "a" }] }, ids: ["a"] },
    {
      body: { data: [{ id: "a", motet: details }, { id: "b", motet: details }, { id: "embed" }] },
      ids: ["a", "b"],
    },
    { body: { object: "list", data: [] }, ids: [] },
    { body: { data: [null, { id: 3, motet: {} }] }, ids: [] },
    { body: "not json", ids: [] },
    { body: null, ids: [] },
  ];
  for (const { body, ids } of cases) {
    it(`reads ${JSON.stringify(body)}`, async () => {
      const text = body === "not json" ? body : JSON.stringify(body);
      const asked = createApi(() => Promise.resolve(new Response(text))).models(new AbortController().signal);
      if (ids.length === 0) await expect(asked).rejects.toMatchObject({ failure: { kind: "loading" } });
      else expect((await asked).map(({ id }) => id)).toEqual(ids);
    });
  }
});
