/** First wait for a model that is loading, doubled each time. */
const FIRST_MS = 500;
const LONGEST_MS = 5000;

/** Retries before the page gives up and offers a button: about two minutes, longer than any local model takes to load. */
export const MAX_ATTEMPTS = 26;

/** How long to wait before retry `attempt` (from 1), in ms. The server's own advice wins while it is sane. */
export function delayMs(attempt: number, retryAfterMs?: number): number {
  if (retryAfterMs !== undefined) return Math.min(Math.max(retryAfterMs, FIRST_MS), 4 * LONGEST_MS);
  return Math.min(FIRST_MS * 2 ** (attempt - 1), LONGEST_MS);
}

/** Resolves after `ms`; rejects with the signal's reason as soon as it aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
