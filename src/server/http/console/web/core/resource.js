// Loading what a view shows: one answer, or a list page by page. Views show the last confirmed state; what is loading or has
// failed is said beside it.

import { useCallback, useEffect, useRef, useState } from "./html.js";
import { get, recoveries } from "./api.js";

/**
 * The answer of `load`, loaded again when one of `inputs` changes, when the server is back, and every `every` milliseconds
 * while the page is visible.
 */
export function useResource(load, inputs, { every } = {}) {
  const [state, setState] = useState({ data: undefined, error: null, isLoading: true });
  const latest = useRef(0);
  const underWay = useRef(0);
  const reload = useCallback(async () => {
    const turn = ++latest.current;
    underWay.current += 1;
    setState((before) => ({ ...before, isLoading: true }));
    try {
      const data = await load();
      if (turn === latest.current) setState({ data, error: null, isLoading: false });
    } catch (error) {
      if (turn === latest.current && error.name !== "AbortError") {
        // What was shown stays, unless it is gone or not this user's any more.
        const isGone = [401, 403, 404].includes(error.status);
        setState((before) => ({ data: isGone ? undefined : before.data, error, isLoading: false }));
      }
    } finally {
      underWay.current -= 1;
    }
  }, inputs);
  const recovered = recoveries.value;
  useEffect(() => {
    reload();
    return () => (latest.current += 1);
  }, [reload, recovered]);
  useEffect(() => {
    if (!every) return undefined;
    // A slow answer is waited for: asking again would make it outdated before it came.
    const timer = setInterval(() => document.hidden || underWay.current > 0 || reload(), every);
    return () => clearInterval(timer);
  }, [reload, every]);
  const set = (data) => {
    // An answer that was asked for before is older than this.
    latest.current += 1;
    setState({ data, error: null, isLoading: false });
  };
  return { ...state, reload, set };
}

/** A GET as a resource. A path of `null` loads nothing. */
export function useGet(path, query, options) {
  const key = JSON.stringify(query ?? {});
  return useResource(async () => (path === null ? null : get(path, query)), [path, key], options);
}

/**
 * A list that is loaded page by page: `more()` loads the next page. Empty pages with a cursor, which a filter that matches
 * little gives, are passed over until something is found or `MAX_EMPTY` were read.
 */
export function useList(path, query = {}, { limit = 100 } = {}) {
  const key = JSON.stringify(query);
  const [state, setState] = useState({ items: [], next: null, error: null, isLoading: true, isComplete: false });
  const latest = useRef(0);
  const loading = useRef(false);

  const fetchPage = useCallback(async (cursor, before) => {
    const turn = latest.current;
    loading.current = true;
    setState((state) => ({ ...state, isLoading: true, error: null }));
    try {
      let page = await get(path, { ...query, limit, cursor });
      for (let empty = 0; page.items.length === 0 && page.next && empty < MAX_EMPTY; empty += 1) {
        if (turn !== latest.current) return;
        page = await get(path, { ...query, limit, cursor: page.next });
      }
      if (turn !== latest.current) return;
      const items = [...before, ...page.items];
      setState({ items, next: page.next, error: null, isLoading: false, isComplete: !page.next });
    } catch (error) {
      if (turn === latest.current) setState((state) => ({ ...state, error, isLoading: false }));
    } finally {
      if (turn === latest.current) loading.current = false;
    }
  }, [path, key, limit]);

  const recovered = recoveries.value;
  const reload = useCallback(() => {
    latest.current += 1;
    return fetchPage(undefined, []);
  }, [fetchPage]);
  useEffect(() => {
    reload();
    return () => (latest.current += 1);
  }, [reload, recovered]);

  const more = () => {
    if (state.next && !loading.current) fetchPage(state.next, state.items);
  };
  return { ...state, more, reload };
}

const MAX_EMPTY = 40;

/** The state of an action: `run(work)` runs it once at a time and keeps its error. */
export function useAction() {
  const [state, setState] = useState({ isBusy: false, error: null });
  const run = async (work) => {
    if (state.isBusy) return undefined;
    setState({ isBusy: true, error: null });
    try {
      const result = await work();
      setState({ isBusy: false, error: null });
      return result;
    } catch (error) {
      setState({ isBusy: false, error });
      return undefined;
    }
  };
  return { ...state, run, clear: () => setState({ isBusy: false, error: null }) };
}

/** `value`, once it has not changed for `delay` milliseconds. */
export function useDebounced(value, delay = 300) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}
