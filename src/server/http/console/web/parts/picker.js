// A field that finds records while one types: the server is asked, so that the number of records does not matter.

import { html, classes, useId, useState } from "../core/html.js";
import { get } from "../core/api.js";
import { useDebounced, useResource } from "../core/resource.js";
import { ErrorBox } from "./basics.js";

/** Records that are listed at most. */
export const LISTED = 20;

/** Sinks by words, as `{id, name, kind, record}`; `isCut` if more match. */
export async function findSinks(words) {
  const { items, next } = await get("/api/event-sinks", { q: words, limit: LISTED });
  const found = items.map((sink) => ({ id: sink.id, name: sink.name, kind: `${sink.type} sink, ${sink.owner}`, record: sink }));
  return Object.assign(found, { isCut: Boolean(next) });
}

/**
 * `search(words)` resolves to options `{id, name, kind}`. `value` is the id of the chosen one and `name` its name; `onChoose` gets an
 * option, or `null` when the field is emptied.
 */
export function Picker({ label, hint, value, name, search, onChoose, placeholder = "any" }) {
  const id = useId();
  const [text, setText] = useState(null);
  const [at, setAt] = useState(0);
  const isOpen = text !== null;
  const words = useDebounced(text ?? "", 200);
  const found = useResource(async () => (isOpen ? { words, options: await search(words.trim()) } : null), [words, isOpen]);
  const options = isOpen && found.data?.words === text ? found.data.options : [];
  const isAnswered = isOpen && found.data?.words === text && !found.error;
  const choose = (option) => {
    setText(null);
    onChoose(option);
  };
  const onInput = (event) => {
    setText(event.target.value);
    setAt(0);
    if (event.target.value === "" && value) onChoose(null);
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, options.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter" && options[at]) choose(options[at]);
    else if (event.key === "Escape" && isOpen) setText(null);
    else return;
    event.preventDefault();
  };
  return html`<div class="field picker" onFocusOut=${(event) => event.currentTarget.contains(event.relatedTarget) || setText(null)}>
    <label for=${id}>${label}</label>
    <input id=${id} type="text" role="combobox" aria-expanded=${isOpen} aria-controls=${`${id}-list`} aria-autocomplete="list"
      aria-activedescendant=${options[at] ? `${id}-${at}` : undefined} placeholder=${placeholder} autocomplete="off" spellcheck=${false}
      value=${text ?? name ?? value ?? ""} onFocus=${() => setText("")} onInput=${onInput} onKeyDown=${onKeyDown} />
    ${hint && html`<div class="hint">${hint}</div>`}
    <div class=${classes("picker-list", isOpen && "open")}>
      <ul id=${`${id}-list`} role="listbox" aria-label=${`Found: ${label}`}>
        ${options.map((option, index) => html`<li key=${option.id} id=${`${id}-${index}`} role="option" tabindex="-1"
          aria-selected=${index === at} onClick=${() => choose(option)}>${option.name}<span class="kind">${option.kind}</span></li>`)}
      </ul>
      <div role="status">
        ${isOpen && !isAnswered && !found.error && html`<p class="muted">Looking…</p>`}
        ${isOpen && found.error && html`<${ErrorBox} error=${found.error} />`}
        ${isAnswered && options.length === 0 && html`<p class="muted">Nothing found.</p>`}
        ${isAnswered && options.isCut && html`<p class="muted">More match: type on to narrow it down.</p>`}
      </div>
    </div>
  </div>`;
}
