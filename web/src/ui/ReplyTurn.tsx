import { memo } from "react";
import type { Failure } from "../api/failure";
import { isActive, type Reply } from "../state/conversation";
import { Markdown } from "../markdown/Markdown";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";
import { ReplyDetails } from "./ReplyDetails";
import { useSession } from "./context";
import { duration, noticeText } from "./facts";
import { useCountdown } from "./useCountdown";

interface Props {
  reply: Reply;
  /** It may be written anew: nothing follows it and nothing is being written. */
  canRedo: boolean;
}

export const ReplyTurn = memo(function ReplyTurn({ reply, canRedo }: Props) {
  const isWriting = isActive(reply);
  const notice = noticeText(reply);
  return (
    <article className="turn reply" data-status={reply.status} aria-busy={isWriting}>
      <h2 className="sr-only">Motet</h2>
      {reply.text !== "" && <Markdown text={reply.text} isOpen={isWriting} />}
      {reply.status === "waiting" && <Waiting reply={reply} />}
      {notice !== null && <p className="note">{notice}</p>}
      <Outcome reply={reply} canRedo={canRedo} />
      {!isWriting && <Actions reply={reply} canRedo={canRedo} />}
    </article>
  );
});

function Waiting({ reply }: { reply: Reply }) {
  return (
    <p className="waiting">
      <span className="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      {reply.hold ? (
        <span>
          {reply.hold.why.title}. Trying again on its own (attempt {reply.hold.attempt + 1}).
        </span>
      ) : (
        <span className="sr-only">Waiting for the first word</span>
      )}
    </p>
  );
}

/** What to know about how the reply ended, where it isn't simply complete. */
function Outcome({ reply, canRedo }: Props) {
  if (reply.failure) return <Problem reply={reply} failure={reply.failure} canRetry={canRedo} />;
  if (reply.status === "stopped") {
    return <p className="note">{reply.text === "" ? "Stopped before the first word." : "Stopped."}</p>;
  }
  if (reply.finish === "length") return <p className="note">Cut off: the reply reached the length limit.</p>;
  if (reply.finish === "content_filter") return <p className="note">Ended by the server’s safety rules.</p>;
  if (reply.status === "done" && reply.text === "")
    return <p className="note">The model had nothing to say.</p>;
  return null;
}

function Problem({ reply, failure, canRetry }: { reply: Reply; failure: Failure; canRetry: boolean }) {
  const session = useSession();
  const isCut = failure.kind === "cut" && reply.text !== "";
  return (
    <div className="problem" role="group" aria-label="Problem" data-kind={failure.kind}>
      <Icon name="alert" />
      <div>
        <p>
          <strong>{isCut ? `Interrupted: ${lowerFirst(failure.title)}` : failure.title}</strong>
        </p>
        <p>{failure.advice}</p>
        {failure.requestId && <p className="muted small">Request {failure.requestId}</p>}
      </div>
      {canRetry && failure.kind !== "quota" && (
        <RetryButton retryAt={failure.retryAt ?? null} onRetry={() => session.again(reply.id)} />
      )}
    </div>
  );
}

/** Waits until the time that the server named: who comes earlier is refused again, and loses the room kept for it. */
function RetryButton({ retryAt, onRetry }: { retryAt: number | null; onRetry: () => void }) {
  const left = useCountdown(retryAt);
  return (
    <button type="button" className="plain" disabled={left > 0} onClick={onRetry}>
      {left > 0 ? `Retry in ${duration(left)}` : "Retry"}
    </button>
  );
}

function Actions({ reply, canRedo }: Props) {
  const session = useSession();
  if (reply.text === "" && reply.failure) return null;
  return (
    <div className="actions">
      {reply.text !== "" && <CopyButton text={reply.text} label="Copy reply" />}
      {canRedo && !reply.failure && (
        <button
          type="button"
          className="quiet"
          aria-label="Write again"
          title="Write again"
          onClick={() => session.again(reply.id)}
        >
          <Icon name="again" />
        </button>
      )}
      <ReplyDetails reply={reply} />
    </div>
  );
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
