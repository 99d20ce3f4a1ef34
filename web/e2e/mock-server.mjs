// A stand-in for the Motet server: the files of dist under the same content security policy, and an API whose
// replies, delays and failures are scripted by a word in the last message. For tests of the page only.
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { HOSTILE, longText, PLAIN, RICH } from "./mock-replies.mjs";

const DIST = fileURLToPath(new URL("../dist", import.meta.url));
const CSP = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:";
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
const MODEL = "SmolLM2-135M-Instruct";
const OTHER = { id: "lab/big", motet: { roles: ["reasoning"], description: "Code and mathematics" } };

/**
 * Starts on `port` (0: any free one). `loading` is how many API requests are answered with 503 first, `hasChoice`
 * whether there is a second model. Who waits in line (`mock:line`) goes on when `state.isNext` is set.
 */
export async function startMock({ port = 0, loading = 0, hasChoice = false } = {}) {
  const state = { running: 0, requests: [], loading, hasChoice, isNext: false };
  const server = createServer((request, response) => {
    route(state, request, response).catch(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const close = () =>
    new Promise((resolve) => {
      server.closeAllConnections();
      server.close(resolve);
    });
  return { url, state, close };
}

async function route(state, request, response) {
  const path = new URL(request.url, "http://mock").pathname;
  if (path === "/metrics")
    return send(response, 200, "text/plain", `motet_sequences_running ${state.running}\n`);
  if (!path.startsWith("/v1/")) return file(path, response);
  if (state.loading > 0) {
    state.loading -= 1;
    return error(response, 503, "model_loading", "The model is loading.");
  }
  if (path === "/v1/models") {
    const models = state.hasChoice
      ? [{ id: MODEL, motet: { roles: [], description: "" } }, OTHER]
      : [{ id: MODEL }];
    const data = models.map((model) => ({ object: "model", created: 0, owned_by: "motet", ...model }));
    return json(response, 200, { object: "list", data });
  }
  if (path === "/v1/chat/completions") return chat(state, request, response);
  return error(response, 404, "not_found", "No such path.");
}

async function chat(state, request, response) {
  let body = "";
  for await (const part of request) body += part;
  const chatRequest = JSON.parse(body);
  state.requests.push(chatRequest);
  const asked = String(chatRequest.messages.at(-1)?.content ?? "");
  if (asked.includes("mock:too-long")) {
    return error(response, 400, "context_length_exceeded", "The prompt is longer than the context.");
  }
  if (asked.includes("mock:refused"))
    return error(response, 400, "invalid_value", "temperature is out of range.");
  if (asked.includes("mock:busy"))
    return error(response, 503, "server_is_overloaded", "Busy.", { "retry-after": "7" });
  if (asked.includes("mock:limit"))
    return error(response, 429, "rate_limit_exceeded", "Over a limit.", { "retry-after-ms": "60000" });
  if (asked.includes("mock:quota"))
    return error(response, 429, "insufficient_quota", "No budget.", { "x-should-retry": "false" });
  state.running += 1;
  try {
    await stream(state, response, asked);
  } finally {
    state.running -= 1;
  }
}

async function stream(state, response, asked) {
  const headers = { "content-type": "text/event-stream", "cache-control": "no-cache, no-transform" };
  if (asked.includes("mock:line")) {
    headers["x-motet-model"] = "lab%2Fsmall";
    headers["x-motet-model-reason"] = "degraded:overload, instead of lab/big";
    headers["x-motet-degraded"] = "shorten-output;max-tokens=512, queue-with-eta";
  }
  response.writeHead(200, headers);
  response.write(": keep-alive\n\n");
  if (asked.includes("mock:line")) {
    response.write(': motet {"notice":{"queue":{"position":3,"eta_seconds":12}}}\n\n');
    while (!state.isNext && !response.destroyed) await sleep(20);
  }
  const write = (chunk) => response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  const delta = (fields, finish_reason = null) =>
    write(envelope([{ index: 0, delta: fields, logprobs: null, finish_reason }], null));
  if (asked.includes("mock:slow")) await sleep(8000);
  delta({ role: "assistant", content: "", refusal: null });
  const pieces = textFor(asked).match(/\s*\S+/gu) ?? [];
  const endsEarly = /mock:(error|cut|destroy)/.test(asked);
  const count = endsEarly ? Math.min(6, pieces.length) : pieces.length;
  for (const piece of pieces.slice(0, count)) {
    if (response.destroyed) return;
    delta({ content: piece });
    await sleep(asked.includes("mock:fast") ? 1 : 12);
  }
  if (asked.includes("mock:destroy")) return response.destroy();
  if (asked.includes("mock:cut")) return response.end();
  if (asked.includes("mock:error")) {
    const said = { message: "The engine ran out of memory.", type: "server_error", param: null, code: null };
    return response.end(`data: ${JSON.stringify({ error: said })}\n\n`);
  }
  delta({}, "stop");
  write(envelope([], usage(count)));
  response.end("data: [DONE]\n\n");
}

function textFor(asked) {
  if (asked.includes("mock:rich")) return RICH;
  if (asked.includes("mock:hostile")) return HOSTILE;
  if (asked.includes("mock:long") || /long/i.test(asked)) return longText();
  return PLAIN;
}

function envelope(choices, usage) {
  return { id: "chatcmpl-mock", object: "chat.completion.chunk", created: 0, model: MODEL, choices, usage };
}

function usage(completion_tokens) {
  return {
    prompt_tokens: 31,
    completion_tokens,
    total_tokens: 31 + completion_tokens,
    prompt_tokens_details: { cached_tokens: 16 },
  };
}

function file(path, response) {
  const name = normalize(path === "/" ? "/index.html" : path);
  const full = join(DIST, name);
  if (!full.startsWith(DIST) || !existsSync(full) || !statSync(full).isFile()) {
    return send(response, 404, "text/plain", "not found\n");
  }
  response.writeHead(200, {
    "content-type": TYPES[extname(full)] ?? "application/octet-stream",
    "content-security-policy": CSP,
  });
  createReadStream(full).pipe(response);
}

function error(response, status, code, message, headers = {}) {
  const body = { error: { message, type: "invalid_request_error", param: null, code } };
  return json(response, status, body, { "x-request-id": "req-mock", ...headers });
}

function json(response, status, body, headers = {}) {
  return send(response, status, "application/json", JSON.stringify(body), headers);
}

function send(response, status, type, body, headers = {}) {
  response.writeHead(status, { "content-type": type, ...headers });
  response.end(body);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await startMock({ port: Number(process.env.PORT ?? 8099) });
  console.log(url);
}
