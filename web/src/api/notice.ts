/** What the server says about a reply besides the reply: that it waits in line, or what was given up for it. */
export interface Notice {
  /** Names such as `shorten-output`. */
  degraded?: readonly string[];
  /** Where the reply was made shorter: its most tokens. */
  maxTokens?: number;
  queue?: { position: number; etaSeconds: number };
}

const MARK = "motet ";

/** The notice in a comment of a stream; null for other comments. */
export function noticeOf(comment: string): Notice | null {
  const text = comment.trimStart();
  if (!text.startsWith(MARK)) return null;
  let body: { notice?: WireNotice } | null;
  try {
    body = JSON.parse(text.slice(MARK.length)) as typeof body;
  } catch {
    return null;
  }
  const wire = body?.notice;
  if (typeof wire !== "object" || wire === null) return null;
  const notice: Notice = {};
  if (Array.isArray(wire.degraded)) notice.degraded = wire.degraded.filter((it) => typeof it === "string");
  if (typeof wire.max_tokens === "number") notice.maxTokens = wire.max_tokens;
  const { position, eta_seconds } = wire.queue ?? {};
  if (typeof position === "number" && typeof eta_seconds === "number") {
    notice.queue = { position, etaSeconds: eta_seconds };
  }
  return notice;
}

/** What is said in comments, `: motet {"notice":…}`. */
interface WireNotice {
  degraded?: unknown[];
  max_tokens?: unknown;
  queue?: { position?: unknown; eta_seconds?: unknown };
}

/** The notice in the header `x-motet-degraded`: `shorten-output;max-tokens=512, queue-with-eta`. */
export function noticeOfHeader(header: string | null): Notice | null {
  if (header === null || header.trim() === "") return null;
  const notice: { degraded: string[]; maxTokens?: number } = { degraded: [] };
  for (const part of header.split(",")) {
    const [name = "", ...parameters] = part.split(";").map((it) => it.trim());
    if (name !== "") notice.degraded.push(name);
    for (const parameter of parameters) {
      const tokens = /^max-tokens=(\d+)$/.exec(parameter)?.[1];
      if (tokens) notice.maxTokens = Number(tokens);
    }
  }
  return notice;
}
