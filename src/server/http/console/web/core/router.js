// The address of a view, `#/sinks/ID?tab=letters`, as a path and a query. Every view and filter has one, so that links, the
// back button and reloading work.

import { computed, signal } from "./html.js";

const address = signal(location.hash);

/** Forms with changes that are not saved. */
const unsaved = new Set();

/** The place of the shown view in the browser's history, which each entry keeps in its state. */
let position = history.state?.position ?? 0;
history.replaceState({ position }, "");

/** The move that was asked for while there are unsaved changes: `{href, steps}`, or `null`. The page asks before it is made. */
export const asked = signal(null);

window.addEventListener("hashchange", () => {
  if (location.hash === address.value) return;
  const isNew = history.state?.position === undefined;
  const there = isNew ? position + 1 : history.state.position;
  if (unsaved.size > 0 && leavesForm(location.hash)) {
    asked.value = { href: location.hash, steps: isNew ? 0 : there - position };
    history.go(position - there);
    return;
  }
  position = there;
  if (isNew) history.replaceState({ position }, "");
  address.value = location.hash;
});

window.addEventListener("beforeunload", (event) => {
  if (unsaved.size > 0) event.preventDefault();
});

/** True if another view, or another part of this one, is at the address. A filter of the same view is not. */
function leavesForm(hash) {
  const [here, there] = [parse(address.value), parse(hash)];
  return here.path.join("/") !== there.path.join("/") || here.query.tab !== there.query.tab;
}

/** Notes a form with unsaved changes; returns the function that forgets it, as effects want it. */
export function holdUnsaved(form) {
  unsaved.add(form);
  return () => unsaved.delete(form);
}

/** The user's answer: makes the move that was asked for, or stays. */
export function answerAsked(isLeaving) {
  const { href, steps } = asked.value;
  asked.value = null;
  if (!isLeaving) return;
  unsaved.clear();
  if (steps === 0) location.hash = href;
  else history.go(steps);
}

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

/** Goes to an address. After a save there is nothing to ask: `isSaved`. */
export function navigate(href, { isSaved = false } = {}) {
  if (isSaved) unsaved.clear();
  location.hash = href;
}

/** Changes the query of the present view. A filter being typed replaces the entry of the history instead of adding one. */
export function setQuery(changes, { replace = false } = {}) {
  const { path, query } = place.value;
  const href = to(...path, { ...query, ...changes });
  if (replace) {
    history.replaceState({ position }, "", href);
    address.value = href;
  } else {
    navigate(href);
  }
}
