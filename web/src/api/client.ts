import {
  apiError,
  CUT,
  failureOf,
  LOADING,
  ReplyFailure,
  STALLED,
  streamFailure,
  UNREACHABLE,
} from "./failure";
import { noticeOf, noticeOfHeader, type Notice } from "./notice";
import { readEvents } from "./sse";

export interface ChatTurn {
  role: "user" | "assistant";
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: ChatTurn[];
}

/** Token counts as the server metered them. */
export interface Usage {
  promptTokens: number;
  completionTokens: number;
  /** Prompt tokens taken from the prefix cache. */
  cachedTokens: number;
}

export type ReplyEvent =
  | { kind: "text"; text: string }
  | { kind: "finish"; reason: string }
  | { kind: "usage"; usage: Usage }
  | { kind: "served"; model: string; reason: string | null }
  | { kind: "notice"; notice: Notice };

/** A model that writes replies. */
export interface Model {
  id: string;
  description: string;
  roles: readonly string[];
}

export interface Api {
  /** The models that can be used, the default one first. Throws `ReplyFailure`; kind `loading` while there is none. */
  models(signal: AbortSignal): Promise<Model[]>;
  /**
   * The events of one reply. Returns normally only after the server said that it was done; otherwise throws
   * `ReplyFailure`, or the signal's reason after an abort.
   */
  reply(request: ChatRequest, signal: AbortSignal): AsyncGenerator<ReplyEvent, void, undefined>;
}

/** Low temperature: a small model drifts off at the usual one. */
const SAMPLING = { temperature: 0.2, top_p: 0.9 };

/** The server sends a comment line every few seconds, even while a request waits: this much silence is a dead peer. */
const SILENCE_MS = 60_000;

export function createApi(fetcher: typeof fetch = (...args) => fetch(...args), silenceMs = SILENCE_MS): Api {
  return {
    async models(signal) {
      const response = await request(fetcher, "/v1/models", { signal });
      const models = modelsIn(await response.json().catch(() => null));
      if (models.length === 0) throw new ReplyFailure(LOADING);
      return models;
    },
    reply: (chat, signal) => reply(fetcher, chat, signal, silenceMs),
  };
}

async function* reply(
  fetcher: typeof fetch,
  chat: ChatRequest,
  signal: AbortSignal,
  silenceMs: number,
): AsyncGenerator<ReplyEvent, void, undefined> {
  const silence = watchdog(silenceMs);
  const either = AbortSignal.any([signal, silence.signal]);
  try {
    const response = await request(fetcher, "/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify({ ...chat, ...SAMPLING, stream: true, stream_options: { include_usage: true } }),
      signal: either,
    });
    if (response.body === null) throw new ReplyFailure(CUT);
    silence.reset();
    yield* headerEvents(response.headers);
    for await (const sent of readEvents(response.body, silence.reset)) {
      if (sent.kind === "comment") yield* commentEvents(sent.text);
      else if (sent.data === "[DONE]") return;
      else yield* chunkEvents(sent.data);
    }
    throw new ReplyFailure(CUT);
  } catch (error) {
    signal.throwIfAborted();
    if (silence.signal.aborted) throw new ReplyFailure(STALLED);
    throw error instanceof ReplyFailure ? error : new ReplyFailure(CUT);
  } finally {
    silence.stop();
  }
}

/** Fetches from the own origin; anything but a 2xx throws `ReplyFailure`, an abort throws the signal's reason. */
async function request(fetcher: typeof fetch, path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetcher(path, init);
  } catch {
    init.signal?.throwIfAborted();
    throw new ReplyFailure(UNREACHABLE);
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => "");
  throw new ReplyFailure(failureOf(response.status, response.headers, text));
}

/** Who answers, and what was given up for the reply. */
function headerEvents(headers: Headers): ReplyEvent[] {
  const events: ReplyEvent[] = [];
  const model = headers.get("x-motet-model");
  if (model) {
    events.push({ kind: "served", model: unescaped(model), reason: headers.get("x-motet-model-reason") });
  }
  const notice = noticeOfHeader(headers.get("x-motet-degraded"));
  if (notice) events.push({ kind: "notice", notice });
  return events;
}

function commentEvents(text: string): ReplyEvent[] {
  const notice = noticeOf(text);
  return notice ? [{ kind: "notice", notice }] : [];
}

/** A header's text, in which `%` and two digits stand for a byte. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What one chunk of a chat stream says. Throws `ReplyFailure` for an error object or bytes that aren't a chunk. */
export function chunkEvents(data: string): ReplyEvent[] {
  let chunk: WireChunk;
  try {
    chunk = JSON.parse(data) as WireChunk;
  } catch {
    throw new ReplyFailure(CUT);
  }
  const error = apiError(chunk);
  if (error) throw new ReplyFailure(streamFailure(error));
  const events: ReplyEvent[] = [];
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) events.push({ kind: "text", text: choice.delta.content });
  if (choice?.finish_reason) events.push({ kind: "finish", reason: choice.finish_reason });
  if (chunk.usage) {
    const { prompt_tokens = 0, completion_tokens = 0, prompt_tokens_details } = chunk.usage;
    const cachedTokens = prompt_tokens_details?.cached_tokens ?? 0;
    events.push({
      kind: "usage",
      usage: { promptTokens: prompt_tokens, completionTokens: completion_tokens, cachedTokens },
    });
  }
  return events;
}

/** The parts of a `chat.completion.chunk` that the page reads. */
interface WireChunk {
  choices?: { delta?: { content?: string | null }; finish_reason?: string | null }[];
  usage?: {
    prompt_tokens?: number;
    completion_tokens?: number;
    prompt_tokens_details?: { cached_tokens?: number };
  } | null;
}

/** Of several, those without `motet` make embeddings. */
function modelsIn(body: unknown): Model[] {
  const list = (body as { data?: WireModel[] } | null)?.data;
  if (!Array.isArray(list)) return [];
  return list
    .filter((it, index) => typeof it?.id === "string" && (index === 0 || it.motet))
    .map(({ id, motet }) => ({ id, description: motet?.description ?? "", roles: motet?.roles ?? [] }));
}

interface WireModel {
  id: string;
  motet?: { description?: string; roles?: string[] };
}

function watchdog(ms: number): { signal: AbortSignal; reset: () => void; stop: () => void } {
  const controller = new AbortController();
  let timer: ReturnType<typeof setTimeout>;
  const reset = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(), ms);
  };
  reset();
  return { signal: controller.signal, reset, stop: () => clearTimeout(timer) };
}
