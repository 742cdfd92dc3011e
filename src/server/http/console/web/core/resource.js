// Loading what a view shows: one answer, or a list page by page. Views show the last confirmed state; what is loading or has
// failed is said beside it.

import { useCallback, useEffect, useRef, useState } from "./html.js";
import { get, recoveries } from "./api.js";

/**
 * The answer of `load`, loaded again when one of `inputs` changes, when the server is back, and every `every` milliseconds
 * while the page is visible.
 */
export function useResource(load, inputs, { every } = {}) {
  const [state, setState] = useState({ data: undefined, error: null, isLoading: true, loadedAt: null });
  const latest = useRef(0);
  const underWay = useRef(0);
  const reload = useCallback(async () => {
    const turn = ++latest.current;
    underWay.current += 1;
    setState((before) => ({ ...before, isLoading: true }));
    try {
      const data = await load();
      if (turn === latest.current) setState({ data, error: null, isLoading: false, loadedAt: new Date().toISOString() });
    } catch (error) {
      if (turn === latest.current && error.name !== "AbortError") {
        // What was shown stays, unless it is gone or not this user's any more.
        const isGone = [401, 403, 404].includes(error.status);
        setState((before) => ({ ...before, data: isGone ? undefined : before.data, error, isLoading: false }));
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
    setState({ data, error: null, isLoading: false, loadedAt: new Date().toISOString() });
  };
  return { ...state, reload, set, isRefreshing: state.isLoading && state.data !== undefined, isRefreshed: Boolean(every) };
}

/** A GET as a resource, with the `texts` of these members if options name some. A path of `null` loads nothing. */
export function useGet(path, query, { texts, ...options } = {}) {
  const key = JSON.stringify(query ?? {});
  return useResource(async () => (path === null ? null : get(path, query, { texts })), [path, key], options);
}

const NO_PAGES = { items: [], next: null, error: null, isLoading: true, isRefreshing: false, isComplete: false, loadedAt: null };

/** The most pages without an item that are passed over before the list says so far as it has come. */
const MAX_EMPTY = 40;

/** Items up to which a list is read anew at each interval. A longer one is read anew by hand. */
const MAX_REFRESHED = 1000;

/**
 * A list that is loaded page by page: `more()` loads the next page. Empty pages with a cursor, which a filter that matches
 * little gives, are passed over until something is found or `MAX_EMPTY` were read. `keep` selects among the items of a page. With `exact`,
 * numbers of the items are written again as they were.
 *
 * `refresh()` reads what is shown anew and puts it in place of the former rows at once; with `every`, that happens at this interval of
 * milliseconds while the page is visible.
 */
export function useList(path, query = {}, { limit = 100, keep, every, exact = false } = {}) {
  const key = JSON.stringify(query);
  const [state, setState] = useState(NO_PAGES);
  const latest = useRef(0);
  const loading = useRef(false);
  const shown = useRef(0);
  shown.current = state.items.length;

  /** Reads pages after `before` until there are `wanted` items, or all. */
  const fetchPages = useCallback(async (cursor, before, wanted) => {
    const turn = ++latest.current;
    loading.current = true;
    const isRefreshing = before.length === 0 && shown.current > 0;
    setState((state) => ({ ...state, isLoading: !isRefreshing, isRefreshing }));
    try {
      const items = [...before];
      let next = cursor;
      let empty = 0;
      do {
        const page = await get(path, { ...query, limit, cursor: next }, { exact });
        if (turn !== latest.current) return;
        const kept = keep ? page.items.filter(keep) : page.items;
        items.push(...kept);
        next = page.next;
        empty = kept.length === 0 ? empty + 1 : 0;
      } while (next && items.length < wanted && empty < MAX_EMPTY);
      const loadedAt = new Date().toISOString();
      setState({ items, next, error: null, isLoading: false, isRefreshing: false, isComplete: !next, loadedAt });
    } catch (error) {
      if (turn === latest.current) setState((state) => ({ ...state, error, isLoading: false, isRefreshing: false }));
    } finally {
      if (turn === latest.current) loading.current = false;
    }
  }, [path, key, limit, keep, exact]);

  const recovered = recoveries.value;
  const refresh = useCallback(() => fetchPages(undefined, [], Math.max(1, shown.current)), [fetchPages]);
  useEffect(() => {
    // Another filter has other rows: those of the former one are no answer to it.
    setState(NO_PAGES);
    shown.current = 0;
  }, [fetchPages]);
  useEffect(() => {
    refresh();
    return () => (latest.current += 1);
  }, [refresh, recovered]);
  useEffect(() => {
    if (!every) return undefined;
    const isDue = () => !document.hidden && !loading.current && shown.current <= MAX_REFRESHED;
    const timer = setInterval(() => isDue() && refresh(), every);
    return () => clearInterval(timer);
  }, [refresh, every]);

  const more = () => {
    if (state.next && !loading.current) fetchPages(state.next, state.items, state.items.length + 1);
  };
  return { ...state, more, reload: refresh, isRefreshed: Boolean(every) && state.items.length <= MAX_REFRESHED };
}

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
