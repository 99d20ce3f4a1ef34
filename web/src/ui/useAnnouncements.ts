import { useEffect, useRef } from "react";
import { isActive, type Conversation, type Reply } from "../state/conversation";
import { announce } from "./status";

/** Tells screen readers when the reply that was being written has ended, and how. */
export function useAnnouncements(conversation: Conversation): void {
  const last = conversation.messages.at(-1);
  const reply = last?.role === "assistant" ? last : null;
  const writing = useRef<string | null>(null);
  useEffect(() => {
    if (!reply) return;
    if (isActive(reply)) {
      if (reply.hold) announce(reply.hold.why.title);
      writing.current = reply.id;
    } else if (writing.current === reply.id) {
      writing.current = null;
      announce(spoken(reply));
    }
  }, [reply]);
}

function spoken(reply: Reply): string {
  if (reply.failure) return `${reply.failure.title}. ${reply.failure.advice}`;
  if (reply.status === "stopped") return "Stopped";
  return `Motet: ${reply.text}`;
}
