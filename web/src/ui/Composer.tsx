import {
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useRef,
  useState,
  type Ref,
  type RefObject,
} from "react";
import { loadDraft, saveDraft } from "../state/persist";
import { Icon } from "./Icon";
import { isSubmit, isTouchOnly } from "./keys";
import { useSession } from "./context";

export interface ComposerHandle {
  focus(): void;
}

interface Props {
  isWriting: boolean;
  storage: Storage;
  onSend: () => void;
  ref: Ref<ComposerHandle>;
}

export function Composer({ isWriting, storage, onSend, ref }: Props) {
  const session = useSession();
  const [text, setText] = useState(() => loadDraft(storage));
  const box = useGrowingBox(text);
  useImperativeHandle(ref, () => ({ focus: () => box.current?.focus() }), [box]);
  useEffect(() => saveDraft(storage, text), [storage, text]);

  const isSendable = !isWriting && text.trim() !== "";
  const send = () => {
    if (!isSendable) return;
    session.send(text);
    setText("");
    onSend();
    box.current?.focus();
  };
  return (
    <form
      className="composer"
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={box}
        value={text}
        rows={1}
        placeholder="Ask anything"
        aria-label="Your message"
        // On a phone it would raise the keyboard over the page.
        autoFocus={!isTouchOnly()}
        enterKeyHint={isTouchOnly() ? "enter" : "send"}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (!isSubmit(event)) return;
          event.preventDefault();
          send();
        }}
      />
      {isWriting ? (
        <StopButton key="stop" onStop={() => session.stop()} />
      ) : (
        <SendButton key="send" isSendable={isSendable} />
      )}
    </form>
  );
}

// Two elements, not one that changes: a click on Stop must not end as a click on Send, which would submit the draft.

function StopButton({ onStop }: { onStop: () => void }) {
  return (
    <button
      type="button"
      className="round"
      aria-label="Stop"
      title="Stop (Esc)"
      onClick={(event) => {
        // The second half of a double click on Send is not a wish to stop.
        if (event.detail < 2) onStop();
      }}
    >
      <Icon name="stop" />
    </button>
  );
}

function SendButton({ isSendable }: { isSendable: boolean }) {
  return (
    <button type="submit" className="round" aria-label="Send" title="Send (Enter)" disabled={!isSendable}>
      <Icon name="send" />
    </button>
  );
}

/** A box as tall as its text; CSS sets the limit. */
function useGrowingBox(text: string): RefObject<HTMLTextAreaElement | null> {
  const box = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);
  return box;
}
