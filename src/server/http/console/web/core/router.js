// The address of a view, `#/sinks/ID?tab=letters`, as a path and a query. Every view and filter has one, so that links, the
// back button and reloading work.

import { computed, signal } from "./html.js";

const address = signal(location.hash);
window.addEventListener("hashchange", () => (address.value = location.hash));

/** `{path: ["sinks", ID], query: {tab: "letters"}}` of the present address. */
export const place = computed(() => parse(address.value));

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const segments = path.split("/").filter(Boolean).map(decode);
  return { path: segments, query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** The address of a view: `to("sinks", id, {tab: "letters"})`. */
export function to(...parts) {
  const last = parts.at(-1);
  const query = typeof last === "object" ? parts.pop() : {};
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = pairs.length > 0 ? `?${new URLSearchParams(pairs)}` : "";
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${search}`;
}

export function navigate(href) {
  location.hash = href;
}

/** Changes the query of the present view. A filter being typed replaces the entry of the history instead of adding one. */
export function setQuery(changes, { replace = false } = {}) {
  const { path, query } = place.value;
  const href = to(...path, { ...query, ...changes });
  if (replace) {
    history.replaceState(null, "", href);
    address.value = href;
  } else {
    navigate(href);
  }
}
