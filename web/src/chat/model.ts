import type { Api, Model } from "../api/client";
import { ReplyFailure } from "../api/failure";
import { createStore, type Store } from "../state/store";
import { delayMs, MAX_ATTEMPTS, sleep } from "./backoff";
import type { ChatApi } from "./session";

/** The name that leaves the choice of a model to the server. */
export const AUTO = "auto";

/** What the header says about the model. */
export type ModelState =
  | { kind: "asking" }
  | { kind: "loading" }
  | { kind: "ready"; id: string; models: readonly Model[] }
  | { kind: "unknown"; why: string };

export type ModelStore = Store<ModelState, ModelState>;

export function createModelStore(): ModelStore {
  return createStore<ModelState, ModelState>((_, next) => next, { kind: "asking" });
}

/** Asks until the server names a model; gives up after `MAX_ATTEMPTS` (a send asks again). */
export async function watchModel(api: Api, store: ModelStore, signal: AbortSignal): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS && !signal.aborted; attempt += 1) {
    try {
      store.dispatch(ready(await api.models(signal)));
      return;
    } catch (error) {
      if (signal.aborted) return;
      store.dispatch(notReady(error));
      const retryAfter = error instanceof ReplyFailure ? error.failure.retryAfterMs : undefined;
      await sleep(delayMs(attempt, retryAfter), signal).catch(() => {});
    }
  }
}

/**
 * What chats ask: the model that was picked, while the server has it, else its default. `store` is told about every
 * list that is learnt, so that the header follows the sends.
 */
export function pickModel(api: Api, store: ModelStore, picked: () => string | null): ChatApi {
  return {
    reply: api.reply.bind(api),
    async model(signal) {
      const state = ready(await api.models(signal));
      store.dispatch(state);
      return effective(picked(), state);
    },
  };
}

/** The model that a send asks for now. */
export function effective(
  picked: string | null,
  { id, models }: { id: string; models: readonly Model[] },
): string {
  if (picked === null || models.length < 2) return id;
  return picked === AUTO || models.some((model) => model.id === picked) ? picked : id;
}

function ready(models: readonly Model[]): ModelState & { kind: "ready" } {
  return { kind: "ready", id: models[0]?.id ?? "", models };
}

const PICKED = "motet.model";

export type PickStore = Store<string | null, string | null>;

/** The picked model, kept in `storage`; null is the server's default. */
export function createPickStore(storage: Storage): PickStore {
  let kept: string | null = null;
  try {
    kept = storage.getItem(PICKED);
  } catch {
    // Blocked storage remembers nothing.
  }
  const store = createStore<string | null, string | null>((_, next) => next, kept);
  store.subscribe(() => {
    try {
      storage.setItem(PICKED, store.get() ?? "");
    } catch {
      // Not remembered, but used.
    }
  });
  return store;
}

function notReady(error: unknown): ModelState {
  if (error instanceof ReplyFailure && error.failure.kind !== "loading") {
    return { kind: "unknown", why: error.failure.title };
  }
  return { kind: "loading" };
}

const UNITS: Record<string, number> = { K: 1e3, M: 1e6, B: 1e9 };

/** The number of parameters that a model's name states (`SmolLM2-135M-Instruct` → 135e6); null where it states none. */
export function parametersIn(id: string): number | null {
  const match = /(?:^|[-_ /])(\d+(?:\.\d+)?)([KMB])(?=$|[-_ .:])/i.exec(id);
  const unit = UNITS[match?.[2]?.toUpperCase() ?? ""];
  return match?.[1] && unit ? Number.parseFloat(match[1]) * unit : null;
}

/** A short, honest word on what to expect, from the model's size. */
export function expectations(id: string | null): string {
  const parameters = id === null ? null : parametersIn(id);
  if (parameters !== null && parameters < 1e9) {
    return "A very small model: quick with short texts and simple questions, often wrong on facts, sums and code.";
  }
  if (parameters !== null && parameters < 1e10) {
    return "A small model: good with texts, less sure of facts. Check what matters.";
  }
  return "Replies can be wrong. Check what matters.";
}
