// The dialogs of the keys and of the search over everything.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { all, get } from "../core/api.js";
import { managesSinks, usesSpaces } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { offeredViews } from "../core/routes.js";
import { useDebounced, useResource } from "../core/resource.js";
import { ErrorBox } from "../parts/basics.js";
import { Dialog } from "../parts/dialogs.js";

const KEYS = [
  ["/", "Search this view, or everything"], ["?", "This help"], ["n", "Make a new one, in a list"],
  ["p", "Pause and continue the live tail"], ["Esc", "Close a dialog"],
];

export function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose} wide>
    <ul class="keys">
      ${KEYS.map(([key, name]) => html`<li key=${key}><span>${name}</span><kbd>${key}</kbd></li>`)}
      ${offeredViews().map((view) => html`<li key=${view.path}>
        <span>${view.name}</span><span><kbd>g</kbd> <kbd>${view.key}</kbd></span>
      </li>`)}
    </ul>
    <p class="hint spaced">
      In the editor: Ctrl-Space completes, F8 goes to the next error, Tab leaves it. Times are local; hover over one to see it in UTC.
    </p>
  <//>`;
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Records of a kind that are listed at most. */
const LISTED = 8;

/** Views by name, sinks and methods by words, spaces by a part of their name, and an event by its id. */
export function Search({ onClose }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const words = useDebounced(text.trim(), 150);
  const spaces = useRef(null);
  const search = useResource(async () => ({ words, ...(await findRecords(words, spaces)) }), [words]);
  const isAnswered = search.data?.words === text.trim();
  const answer = isAnswered ? search.data : { records: [], failures: [], isCut: false };
  const found = [...findViews(text.trim()), ...answer.records];
  useEffect(() => setChosen(0), [text]);
  const open = (result) => {
    onClose();
    navigate(result.href);
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, found.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
    else if (event.key === "Enter" && found[chosen]) open(found[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Search" onClose=${onClose}>
    <input type="search" aria-label="Search views, sinks, methods and spaces" placeholder="A view, sink, method, space or event id"
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown} autocomplete="off" />
    <ul class="search-list" aria-label="Results">
      ${found.map((result, at) => html`<${Result} key=${result.href} result=${result} isChosen=${at === chosen} onClose=${onClose} />`)}
    </ul>
    <div role="status">
      ${!isAnswered && html`<p class="muted">Looking…</p>`}
      ${isAnswered && found.length === 0 && answer.failures.length === 0 && html`<p class="muted">Nothing found.</p>`}
      ${answer.isCut && html`<p class="muted">More match: type on to narrow it down.</p>`}
    </div>
    ${answer.failures.map((error) => html`<${ErrorBox} key=${error.message} error=${error} retry=${search.reload} />`)}
  <//>`;
}

function Result({ result, isChosen, onClose }) {
  return html`<li><a href=${result.href} class=${isChosen ? "chosen" : ""} onClick=${onClose}>
    ${result.name}<span class="kind">${result.kind}</span>
  </a></li>`;
}

function findViews(words) {
  const lower = words.toLowerCase();
  const found = offeredViews().filter((view) => view.name.toLowerCase().includes(lower));
  return found.map((view) => ({ name: view.name, kind: "view", href: to(view.path) }));
}

/** The records of all kinds that the user may see, and the errors of kinds that could not be searched. */
async function findRecords(words, spaces) {
  if (words === "") return { records: [], failures: [], isCut: false };
  if (ID.test(words) && usesSpaces.value) {
    return { records: [{ name: words, kind: "event", href: to("events", words) }], failures: [], isCut: false };
  }
  const searches = [managesSinks.value && findSinks, findMethods, usesSpaces.value && ((text) => findSpaces(text, spaces))].filter(Boolean);
  const results = await Promise.allSettled(searches.map((search) => search(words)));
  const found = results.filter((result) => result.status === "fulfilled").map((result) => result.value);
  return {
    records: found.flatMap((one) => one.records),
    failures: results.filter((result) => result.status === "rejected").map((result) => result.reason),
    isCut: found.some((one) => one.isCut),
  };
}

async function findSinks(words) {
  const { items, next } = await get("/api/event-sinks", { q: words, limit: LISTED });
  return { records: items.map((sink) => ({ name: sink.name, kind: "sink", href: to("sinks", sink.id) })), isCut: Boolean(next) };
}

async function findMethods(words) {
  const { methods } = await get("/api/methods", { q: words });
  const records = methods.slice(0, LISTED).map((method) => ({ name: method.name, kind: "method", href: to("methods", method.name) }));
  return { records, isCut: methods.length > LISTED };
}

/** Spaces by a part of a name, also of their owner's. The server finds whole names only: `spaces` has all, once they were read. */
async function findSpaces(words, spaces) {
  spaces.current ??= await all("/api/spaces");
  const lower = words.toLowerCase();
  const found = spaces.current.filter((space) => `${space.name} ${space.owner}`.toLowerCase().includes(lower));
  const records = found.slice(0, LISTED).map((space) => ({ name: space.name, kind: "space", href: to("spaces", space.id) }));
  return { records, isCut: found.length > LISTED || spaces.current.isCut };
}
