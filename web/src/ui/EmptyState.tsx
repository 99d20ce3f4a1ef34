import { useSession } from "./context";

/** Things that a model of a hundred million parameters does well enough. */
const EXAMPLES = [
  { title: "Explain simply", prompt: "Explain in two sentences why the sky is blue." },
  {
    title: "Rewrite politely",
    prompt: "Rewrite this more politely: Send me the report today, I have been waiting for days.",
  },
  { title: "Make a list", prompt: "Give me five ideas for a rainy Sunday at home." },
  {
    title: "Write an email",
    prompt: "Write a short email that thanks a colleague for helping me with a talk.",
  },
];

export function EmptyState({ note }: { note: string }) {
  const session = useSession();
  return (
    <div className="empty">
      <h2>What shall we write?</h2>
      <p className="muted">The model runs on this server. {note}</p>
      <ul className="examples" aria-label="Examples">
        {EXAMPLES.map(({ title, prompt }) => (
          <li key={title}>
            <button type="button" onClick={() => session.send(prompt)}>
              <strong>{title}</strong>
              <span>{prompt}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
