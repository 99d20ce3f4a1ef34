import type { Reply } from "../state/conversation";
import { replyFacts } from "./facts";

/** The reply's numbers: the speed at a glance, the rest on demand. */
export function ReplyDetails({ reply }: { reply: Reply }) {
  const { summary, rows } = replyFacts(reply);
  if (rows.length === 0) return null;
  return (
    <details className="details">
      <summary>{summary}</summary>
      <dl>
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
