import { Problem } from "../forms";
import type { Loaded } from "./useLoad";

/** What there is to say of a list besides its entries. */
export function ListState<T>({ list, empty }: { list: Loaded<T>; empty: string }) {
  if (list.refusal) return <Problem refusal={list.refusal} />;
  if (list.data === null) return <p className="muted">Loading…</p>;
  return list.data.length === 0 ? <p className="muted">{empty}</p> : null;
}

export function More<T>({ list }: { list: Loaded<T> }) {
  if (!list.hasMore) return null;
  return (
    <button type="button" className="plain" onClick={list.more}>
      Show more
    </button>
  );
}
