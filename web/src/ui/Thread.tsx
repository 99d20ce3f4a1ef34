import { isActive, type Conversation } from "../state/conversation";
import { QuestionTurn } from "./QuestionTurn";
import { ReplyTurn } from "./ReplyTurn";

/** The transcript. Screen readers hear finished replies from the status region instead of each token here. */
export function Thread({ conversation }: { conversation: Conversation }) {
  const { messages } = conversation;
  const last = messages.length - 1;
  const lastMessage = messages[last];
  const isWriting = lastMessage?.role === "assistant" && isActive(lastMessage);
  return (
    <div className="thread" role="log" aria-live="off" aria-label="Conversation">
      {messages.map((message, index) =>
        message.role === "user" ? (
          <QuestionTurn key={message.id} question={message} canEdit={!isWriting && index === last - 1} />
        ) : (
          <ReplyTurn key={message.id} reply={message} canRedo={!isWriting && index === last} />
        ),
      )}
    </div>
  );
}
