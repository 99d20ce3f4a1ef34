import { useEffect, useState } from "react";

const TICK_MS = 250;

/** How long it is to `until` (ms since 1970), in ms; 0 once it is there, and where there is nothing to wait for. */
export function useCountdown(until: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  const left = until === null ? 0 : Math.max(0, until - now);
  const isWaiting = left > 0;
  useEffect(() => {
    if (!isWaiting) return;
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [isWaiting, until]);
  return left;
}
