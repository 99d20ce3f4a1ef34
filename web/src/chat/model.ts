import type { Api } from "../api/client";
import { ReplyFailure } from "../api/failure";
import { createStore, type Store } from "../state/store";
import { delayMs, MAX_ATTEMPTS, sleep } from "./backoff";

/** What the header says about the model. */
export type ModelState =
  { kind: "asking" } | { kind: "loading" } | { kind: "ready"; id: string } | { kind: "unknown"; why: string };

export type ModelStore = Store<ModelState, ModelState>;

export function createModelStore(): ModelStore {
  return createStore<ModelState, ModelState>((_, next) => next, { kind: "asking" });
}

/** Asks until the server names a model; gives up after `MAX_ATTEMPTS` (a send asks again). */
export async function watchModel(api: Api, store: ModelStore, signal: AbortSignal): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS && !signal.aborted; attempt += 1) {
    try {
      store.dispatch({ kind: "ready", id: await api.model(signal) });
      return;
    } catch (error) {
      if (signal.aborted) return;
      store.dispatch(notReady(error));
      const retryAfter = error instanceof ReplyFailure ? error.failure.retryAfterMs : undefined;
      await sleep(delayMs(attempt, retryAfter), signal).catch(() => {});
    }
  }
}

/** An `Api` that tells `store` about every model id it learns, so that the header follows the sends. */
export function tellModel(api: Api, store: ModelStore): Api {
  return {
    ...api,
    async model(signal) {
      const id = await api.model(signal);
      store.dispatch({ kind: "ready", id });
      return id;
    },
  };
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
