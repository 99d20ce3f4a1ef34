import type { KeyboardEvent } from "react";

/** On a touch keyboard there is no Shift+Enter, so Enter makes a new line there and the button sends. */
export function isTouchOnly(): boolean {
  return window.matchMedia("(hover: none) and (pointer: coarse)").matches;
}

/**
 * Whether this key press sends. An input method's Enter only accepts what it composed: `isComposing`, or key code
 * 229 in browsers that end the composition first.
 */
export function isSubmit(event: KeyboardEvent<HTMLTextAreaElement>): boolean {
  if (event.key !== "Enter" || event.shiftKey || event.altKey) return false;
  if (event.nativeEvent.isComposing || event.nativeEvent.keyCode === 229) return false;
  return event.ctrlKey || event.metaKey || !isTouchOnly();
}
