import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

/** This close to the end counts as being there. */
const NEAR_PX = 48;

interface Follow {
  frame: RefObject<HTMLDivElement | null>;
  content: RefObject<HTMLDivElement | null>;
  /** The reader is at the end, and stays there while the content grows. */
  isAtEnd: boolean;
  toEnd: () => void;
}

/**
 * Keeps a scroll frame at its end while the reader is there. Any scroll upwards lets go; reaching the end, or
 * `toEnd`, takes hold again.
 */
export function useFollow(): Follow {
  const frame = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const following = useRef(false);
  const [isAtEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    following.current = true;
    setAtEnd(true);
    const element = frame.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);

  useEffect(() => {
    const element = frame.current;
    const inner = content.current;
    if (!element || !inner) return;
    let lastTop = element.scrollTop;
    const onScroll = () => {
      const gap = element.scrollHeight - element.clientHeight - element.scrollTop;
      const isUpwards = element.scrollTop < lastTop - 1;
      lastTop = element.scrollTop;
      // Content that grew before this event widens the gap without any input: only an upward move lets go.
      if (gap <= 2 || (gap < NEAR_PX && !isUpwards)) following.current = true;
      else if (isUpwards) following.current = false;
      setAtEnd(following.current);
    };
    const onResize = () => {
      if (following.current) element.scrollTop = element.scrollHeight;
    };
    const observer = new ResizeObserver(onResize);
    observer.observe(inner);
    observer.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, []);

  return { frame, content, isAtEnd, toEnd };
}
