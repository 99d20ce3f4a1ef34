/** Why a reply could not be had or finished; decides what the page offers next. */
export type FailureKind =
  | "unreachable" // no HTTP answer
  | "loading" // the model isn't ready yet
  | "busy" // the server asks to come back later
  | "quota" // the account's budget is used up; sending it again can't help
  | "signed_out" // nobody is signed in any more
  | "too_long" // the conversation doesn't fit the model's context
  | "refused" // the request was wrong; sending it again can't help
  | "server" // the server failed
  | "broken" // an error inside the stream
  | "cut"; // the stream ended without saying that it was done

/** A failure as the reader sees it. Plain data: it is stored with the conversation. */
export interface Failure {
  kind: FailureKind;
  title: string;
  advice: string;
  /** When the server said it may be tried again, in ms from the answer. */
  retryAfterMs?: number;
  /** The same in ms since 1970. */
  retryAt?: number;
  requestId?: string;
}

export class ReplyFailure extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.title);
    this.name = "ReplyFailure";
    this.failure = failure;
  }
}

export const UNREACHABLE: Failure = {
  kind: "unreachable",
  title: "The server can’t be reached",
  advice: "Check that Motet is running, then retry.",
};

export const CUT: Failure = {
  kind: "cut",
  title: "The connection closed before the reply was finished",
  advice: "What arrived is kept. Retry to have it written again.",
};

export const STALLED: Failure = {
  kind: "cut",
  title: "The server went silent before the reply was finished",
  advice: "What arrived is kept. Retry to have it written again.",
};

export const LEFT: Failure = {
  kind: "cut",
  title: "The page was left while this reply was being written",
  advice: "What arrived is kept. Retry to have it written again.",
};

export const LOADING: Failure = {
  kind: "loading",
  title: "The model is still loading",
  advice: "This usually takes a few seconds.",
};

export const SIGNED_OUT: Failure = {
  kind: "signed_out",
  title: "You are signed out",
  advice: "Sign in, then retry. This conversation is kept.",
};

interface ApiError {
  message: string;
  code: string | null;
}

/** The error object of an API body, `{"error":{"message","type","param","code"}}`; null where there is none. */
export function apiError(body: unknown): ApiError | null {
  if (typeof body !== "object" || body === null || !("error" in body)) return null;
  const error: unknown = body.error;
  if (typeof error === "string" && error !== "") return { message: error, code: null };
  if (typeof error !== "object" || error === null) return null;
  const message = "message" in error && typeof error.message === "string" ? error.message : "";
  const code = "code" in error && typeof error.code === "string" ? error.code : null;
  return { message, code };
}

/** The failure behind a non-2xx answer. `text` is its body, JSON or not; `now` is in ms since 1970. */
export function failureOf(status: number, headers: Headers, text: string, now = Date.now()): Failure {
  let body: unknown = null;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy's page or nothing at all: the status has to do.
  }
  const error = apiError(body);
  const retryAfterMs = retryAfter(headers);
  const requestId = headers.get("x-request-id") ?? undefined;
  const retryAt = retryAfterMs === undefined ? undefined : now + retryAfterMs;
  return { ...classify(status, error, retryAfterMs), retryAfterMs, retryAt, requestId };
}

/** The failure behind an error object inside a stream. */
export function streamFailure(error: ApiError): Failure {
  return {
    kind: "broken",
    title: "The reply broke off",
    advice: error.message || "The server gave no reason. Retry to have it written again.",
  };
}

function classify(status: number, error: ApiError | null, retryAfterMs?: number): Failure {
  const said = error?.message ?? "";
  const code = error?.code ?? "";
  const wait = retryAfterMs === undefined ? "a moment" : `${Math.ceil(retryAfterMs / 1000)} s`;
  if (status === 503 && code === "server_is_overloaded") {
    return { kind: "busy", title: "The server is busy", advice: `It asked to wait ${wait}.` };
  }
  if (status === 503 && code === "model_loading") return LOADING;
  if (status === 401) return SIGNED_OUT;
  if (status === 429 && code === "insufficient_quota") {
    return {
      kind: "quota",
      title: "The budget of this month is used up",
      advice: "Ask who runs this server for more, or wait for the next month.",
    };
  }
  if (status === 429) {
    return { kind: "busy", title: "Too many requests", advice: `The server asked to wait ${wait}.` };
  }
  if (status === 413 || code === "context_length_exceeded") {
    return {
      kind: "too_long",
      title: "This conversation is too long for the model",
      advice: "Start a new chat, or edit your last message to make it shorter.",
    };
  }
  if (status >= 500) {
    return {
      kind: "server",
      title: "The server had a problem",
      advice: said || `It answered ${status}. Retry in a moment.`,
    };
  }
  return {
    kind: "refused",
    title: "The server refused the request",
    advice: said || `It answered ${status}.`,
  };
}

/** `retry-after-ms` or `retry-after` (seconds) in ms, where it is a sane number. */
export function retryAfter(headers: Headers): number | undefined {
  const ms = Number.parseFloat(headers.get("retry-after-ms") ?? "");
  if (Number.isFinite(ms) && ms >= 0) return ms;
  const seconds = Number.parseFloat(headers.get("retry-after") ?? "");
  return Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined;
}
