import type { ChatTurn, Usage } from "../api/client";
import { LEFT, type Failure } from "../api/failure";
import type { Notice } from "../api/notice";

/** What the user wrote. */
export interface Question {
  role: "user";
  id: string;
  text: string;
}

/**
 * A reply's life: `waiting` (nothing arrived yet) → `streaming` → `done`, or early to `stopped` (by the user) or
 * `failed` (with a reason). Text that arrived is kept in every state.
 */
export type ReplyStatus = "waiting" | "streaming" | "done" | "stopped" | "failed";

export interface Reply {
  role: "assistant";
  id: string;
  text: string;
  status: ReplyStatus;
  model: string | null;
  /** `stop`, `length` or `content_filter`; null until the server says. */
  finish: string | null;
  failure: Failure | null;
  /** While the server isn't ready: why, and which retry comes next (from 1). */
  hold: { why: Failure; attempt: number } | null;
  usage: Usage | null;
  timing: Timing | null;
  /** Why this model answers: `exact`, `alias:…`, `role:…`, `auto:…` or `degraded:…`. */
  reason?: string | null;
  /** What the server says about the reply; later notices add to earlier ones. */
  notice?: Notice;
}

export interface Timing {
  /** From the request to the first text, in ms. */
  firstMs: number;
  /** From the first text to the last, in ms. */
  writeMs: number;
}

export type Message = Question | Reply;

/** One line of messages; every question is followed by its reply. */
export interface Conversation {
  messages: readonly Message[];
}

export const EMPTY: Conversation = { messages: [] };

export type Action =
  | { type: "asked"; id: string; text: string; replyId: string }
  | { type: "asked_again"; replyId: string; newReplyId: string }
  | { type: "edited"; id: string; newId: string; text: string; replyId: string }
  | { type: "held"; replyId: string; why: Failure; attempt: number }
  | { type: "opened"; replyId: string; model: string }
  | { type: "served"; replyId: string; model: string; reason: string | null }
  | { type: "noticed"; replyId: string; notice: Notice }
  | { type: "grew"; replyId: string; text: string }
  | { type: "ended"; replyId: string; end: End }
  | { type: "cleared" };

/** How a reply ended, with what is known about it by then. */
export interface End {
  status: "done" | "stopped" | "failed";
  finish: string | null;
  failure: Failure | null;
  usage: Usage | null;
  timing: Timing | null;
}

/** The next conversation. Unknown ids change nothing: a late event of a removed reply is not an error. */
export function reduce(state: Conversation, action: Action): Conversation {
  switch (action.type) {
    case "asked":
      return {
        messages: [...state.messages, question(action.id, action.text), freshReply(action.replyId)],
      };
    case "asked_again":
      return cut(state, action.replyId, [freshReply(action.newReplyId)]);
    case "edited":
      return cut(state, action.id, [question(action.newId, action.text), freshReply(action.replyId)]);
    case "held":
      return update(state, action.replyId, () => ({ hold: { why: action.why, attempt: action.attempt } }));
    case "opened":
      return update(state, action.replyId, () => ({ model: action.model, hold: null }));
    case "served":
      return update(state, action.replyId, () => ({ model: action.model, reason: action.reason }));
    case "noticed":
      return update(state, action.replyId, ({ notice }) => ({ notice: { ...notice, ...action.notice } }));
    case "grew":
      return update(state, action.replyId, (reply) => ({
        text: reply.text + action.text,
        status: "streaming",
        hold: null,
      }));
    case "ended":
      return update(state, action.replyId, () => ({ ...action.end, hold: null }));
    case "cleared":
      return EMPTY;
  }
}

/** The reply that is being written, if there is one. */
export function activeReply(state: Conversation): Reply | null {
  const last = state.messages.at(-1);
  return last?.role === "assistant" && isActive(last) ? last : null;
}

export function isActive(reply: Reply): boolean {
  return reply.status === "waiting" || reply.status === "streaming";
}

/** What the model is sent: the visible texts in order, without replies that never got a word. */
export function turnsBefore(state: Conversation, replyId: string): ChatTurn[] {
  const turns: ChatTurn[] = [];
  for (const message of state.messages) {
    if (message.id === replyId) break;
    if (message.text !== "") turns.push({ role: message.role, content: message.text });
  }
  return turns;
}

/** A stored conversation as it is shown again: nothing is being written any more, so a reply in flight was left. */
export function revive(state: Conversation): Conversation {
  return {
    messages: state.messages.map((message) =>
      message.role === "assistant" && isActive(message)
        ? { ...message, status: "failed", failure: LEFT, hold: null }
        : message,
    ),
  };
}

function question(id: string, text: string): Question {
  return { role: "user", id, text };
}

function freshReply(id: string): Reply {
  return {
    role: "assistant",
    id,
    text: "",
    status: "waiting",
    model: null,
    finish: null,
    failure: null,
    hold: null,
    usage: null,
    timing: null,
  };
}

/** Everything before message `id`, then `tail`. */
function cut(state: Conversation, id: string, tail: Message[]): Conversation {
  const at = state.messages.findIndex((message) => message.id === id);
  return at < 0 ? state : { messages: [...state.messages.slice(0, at), ...tail] };
}

function update(state: Conversation, id: string, change: (reply: Reply) => Partial<Reply>): Conversation {
  const at = state.messages.findIndex((message) => message.id === id);
  const found = state.messages[at];
  if (found?.role !== "assistant" || !isActive(found)) return state;
  return { messages: state.messages.with(at, { ...found, ...change(found) }) };
}
