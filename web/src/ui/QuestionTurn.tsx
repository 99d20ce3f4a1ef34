import { memo, useEffect, useRef, useState } from "react";
import { flushSync } from "react-dom";
import type { Question } from "../state/conversation";
import { isSubmit } from "./keys";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import { useSession } from "./context";

interface Props {
  question: Question;
  canEdit: boolean;
}

export const QuestionTurn = memo(function QuestionTurn({ question, canEdit }: Props) {
  const [isEditing, setEditing] = useState(false);
  const editButton = useRef<HTMLButtonElement>(null);
  const close = () => {
    flushSync(() => setEditing(false));
    editButton.current?.focus();
  };
  return (
    <article className="turn question">
      <h2 className="sr-only">You</h2>
      {isEditing && canEdit ? (
        <Editor question={question} onClose={close} />
      ) : (
        <>
          <div className="bubble" dir="auto">
            {question.text}
          </div>
          <div className="actions">
            {canEdit && (
              <button
                ref={editButton}
                type="button"
                className="quiet"
                aria-label="Edit message"
                title="Edit message"
                onClick={() => setEditing(true)}
              >
                <Icon name="edit" />
              </button>
            )}
            <CopyButton text={question.text} label="Copy message" />
          </div>
        </>
      )}
    </article>
  );
});

function Editor({ question, onClose }: { question: Question; onClose: () => void }) {
  const session = useSession();
  const [text, setText] = useState(question.text);
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    box.current?.focus();
    box.current?.setSelectionRange(-1, -1);
  }, []);
  const send = () => {
    onClose();
    session.edit(question.id, text);
  };
  return (
    <form
      className="editor"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={box}
        value={text}
        rows={Math.min(text.split("\n").length + 1, 12)}
        aria-label="Edit your message"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            onClose();
          } else if (isSubmit(event)) {
            event.preventDefault();
            if (text.trim() !== "") send();
          }
        }}
      />
      <div className="editor-actions">
        <button type="button" className="plain" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="solid" disabled={text.trim() === ""}>
          Send
        </button>
      </div>
    </form>
  );
}
