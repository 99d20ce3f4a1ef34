import { createStore } from "../state/store";

/** What screen readers are told: finished replies and small confirmations, never single tokens. */
export const status = createStore<string, string>((_, next) => next, "");

/** Longest text that is read out on its own; the rest is in the thread. */
const MAX_SPOKEN = 600;

export function announce(text: string): void {
  const short = text.length > MAX_SPOKEN ? `${text.slice(0, MAX_SPOKEN)}…` : text;
  // The same words again are only read out when the text differs.
  status.dispatch(short === status.get() ? `${short}\u00a0` : short);
}
