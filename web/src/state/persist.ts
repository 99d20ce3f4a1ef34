import { EMPTY, revive, type Action, type Conversation, type Message } from "./conversation";
import type { Store } from "./store";

/** Raised when the stored shape changes; an older one is dropped rather than guessed at. */
const VERSION = 1;
const CONVERSATION = "motet.conversation";
const DRAFT = "motet.draft";

/** At most one write per this time while a reply streams, so that writing it doesn't slow it. */
const SAVE_EVERY_MS = 1000;

/** `pick()`, or a storage that forgets where the browser blocks the real one (reading the property throws then). */
export function storageOr(pick: () => Storage): Storage {
  try {
    return pick();
  } catch {
    const nothing = {
      getItem: () => null,
      setItem: () => {},
      removeItem: () => {},
      clear: () => {},
      key: () => null,
    };
    return { ...nothing, length: 0 };
  }
}

/** The conversation of this tab. A tab has its own, so that two tabs can't overwrite each other's turns. */
export function loadConversation(storage: Storage): Conversation {
  try {
    const stored = JSON.parse(storage.getItem(CONVERSATION) ?? "null") as {
      version?: number;
      messages?: unknown;
    } | null;
    if (stored?.version !== VERSION || !Array.isArray(stored.messages)) return EMPTY;
    if (!stored.messages.every(isMessage)) return EMPTY;
    return revive({ messages: stored.messages });
  } catch {
    return EMPTY;
  }
}

/** Stores every change of `store`, at most once a second, and at once through the returned function. */
export function keepConversation(storage: Storage, store: Store<Conversation, Action>): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  const save = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    write(storage, CONVERSATION, JSON.stringify({ version: VERSION, messages: store.get().messages }));
  };
  store.subscribe(() => {
    timer ??= setTimeout(save, SAVE_EVERY_MS);
  });
  return save;
}

export function loadDraft(storage: Storage): string {
  try {
    return storage.getItem(DRAFT) ?? "";
  } catch {
    return "";
  }
}

export function saveDraft(storage: Storage, text: string): void {
  write(storage, DRAFT, text);
}

function write(storage: Storage, key: string, value: string): void {
  try {
    storage.setItem(key, value);
  } catch {
    // Full or blocked storage costs only what a reload would have brought back.
  }
}

function isMessage(value: unknown): value is Message {
  if (typeof value !== "object" || value === null) return false;
  const { id, role, text } = value as Record<string, unknown>;
  return typeof id === "string" && typeof text === "string" && (role === "user" || role === "assistant");
}
