import { useCallback, useEffect, useState } from "react";
import { asRefusal, type Refusal } from "../../account/refusal";
import type { Page } from "../../account/requests";

export interface Loaded<T> {
  /** Null until it is there. */
  data: readonly T[] | null;
  refusal: Refusal | null;
  hasMore: boolean;
  more: () => void;
  /** Changes what is shown, after the server took the change. */
  change: (change: (data: readonly T[]) => readonly T[]) => void;
}

/** A list of the server, page by page. `load` has to stay the same between renders. */
export function useLoad<T>(load: (after: string | null) => Promise<Page<T>>): Loaded<T> {
  const [data, setData] = useState<readonly T[] | null>(null);
  const [last, setLast] = useState<{ hasMore: boolean; id: string | null }>({ hasMore: false, id: null });
  const [refusal, setRefusal] = useState<Refusal | null>(null);

  const take = useCallback((page: Page<T>) => {
    setData((before) => [...(before ?? []), ...page.data]);
    setLast({ hasMore: page.has_more, id: page.last_id });
  }, []);
  useEffect(() => {
    let isGone = false;
    load(null).then(
      (page) => isGone || take(page),
      (error: unknown) => isGone || setRefusal(asRefusal(error)),
    );
    return () => {
      isGone = true;
    };
  }, [load, take]);

  const more = () => {
    load(last.id).then(take, (error: unknown) => setRefusal(asRefusal(error)));
  };
  const change = (edit: (data: readonly T[]) => readonly T[]) => setData((before) => before && edit(before));
  return { data, refusal, hasMore: last.hasMore, more, change };
}
