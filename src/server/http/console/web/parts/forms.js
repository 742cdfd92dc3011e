// Fields of forms: a label, the control, a hint and the error of the server that names the field.

import { html, classes, useId } from "../core/html.js";
import { fromLocalInput, toLocalInput } from "../core/format.js";
import { setQuery } from "../core/router.js";
import { Icon } from "./icons.js";

/** A labelled control; `children` is a function of its id and description. */
export function Field({ label, hint, error, children, inline = false }) {
  const id = useId();
  const describedBy = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  return html`<div class=${classes("field", inline && "inline", error && "wrong")}>
    <label for=${id}>${label}</label>
    ${children({ id, "aria-describedby": describedBy, "aria-invalid": error ? "true" : undefined })}
    ${hint && html`<div class="hint" id=${`${id}-hint`}>${hint}</div>`}
    ${error && html`<div class="field-error" id=${`${id}-error`}>${error}</div>`}
  </div>`;
}

export function Text({ label, hint, error, value, onInput, type = "text", ...rest }) {
  return html`<${Field} label=${label} hint=${hint} error=${error}>
    ${(bound) => html`<input type=${type} value=${value ?? ""} onInput=${(event) => onInput(event.target.value)} autocomplete="off"
      spellcheck=${false} ...${bound} ...${rest} />`}
  <//>`;
}

export function LongText({ label, hint, error, value, onInput, rows = 3, ...rest }) {
  return html`<${Field} label=${label} hint=${hint} error=${error}>
    ${(bound) => html`<textarea rows=${rows} value=${value ?? ""} onInput=${(event) => onInput(event.target.value)} spellcheck=${false}
      ...${bound} ...${rest}></textarea>`}
  <//>`;
}

/** `options` are values, or pairs of a value and its name. */
export function Select({ label, hint, error, value, onInput, options, ...rest }) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  return html`<${Field} label=${label} hint=${hint} error=${error}>
    ${(bound) => html`<select value=${value ?? ""} onChange=${(event) => onInput(event.target.value)} ...${bound} ...${rest}>
      ${pairs.map(([key, name]) => html`<option key=${key} value=${key} selected=${key === (value ?? "")}>${name}</option>`)}
    </select>`}
  <//>`;
}

export function Check({ label, hint, value, onInput, ...rest }) {
  const id = useId();
  return html`<div class="check">
    <input type="checkbox" id=${id} checked=${Boolean(value)} onChange=${(event) => onInput(event.target.checked)}
      aria-describedby=${hint ? `${id}-hint` : undefined} ...${rest} />
    <div><label for=${id}>${label}</label>${hint && html`<div class="hint" id=${`${id}-hint`}>${hint}</div>`}</div>
  </div>`;
}

/** Several of some values: `options` as for [`Select`]. */
export function Checks({ legend, hint, value = [], onInput, options }) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const toggle = (key, isOn) => onInput(isOn ? [...value, key] : value.filter((one) => one !== key));
  return html`<fieldset class="checks">
    <legend>${legend}</legend>
    ${hint && html`<div class="hint">${hint}</div>`}
    <div class="check-grid">
      ${pairs.map(([key, name]) => html`<${Check} key=${key} label=${name} value=${value.includes(key)}
        onInput=${(isOn) => toggle(key, isOn)} />`)}
    </div>
  </fieldset>`;
}

/** A choice between few values, shown side by side. */
export function Choice({ legend, value, onInput, options, name }) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  return html`<fieldset class="choice">
    <legend>${legend}</legend>
    <div class="choice-row">
      ${pairs.map(([key, title]) => html`<label key=${key} class=${key === value ? "chosen" : ""}>
        <input type="radio" name=${name} value=${key} checked=${key === value} onChange=${() => onInput(key)} />${title}
      </label>`)}
    </div>
  </fieldset>`;
}

/** Names and values, such as headers: `value` is a list of pairs. */
export function Pairs({ legend, hint, value, onInput, nameLabel = "Name", valueLabel = "Value", add = "Add" }) {
  const change = (index, part, text) => onInput(value.map((pair, at) => (at === index ? pair.with(part, text) : pair)));
  return html`<fieldset class="pairs">
    <legend>${legend}</legend>
    ${hint && html`<div class="hint">${hint}</div>`}
    ${value.map(([name, text], index) => html`<div class="pair" key=${index}>
      <input aria-label=${`${nameLabel} ${index + 1}`} placeholder=${nameLabel} value=${name}
        onInput=${(event) => change(index, 0, event.target.value)} spellcheck=${false} autocomplete="off" />
      <input aria-label=${`${valueLabel} ${index + 1}`} placeholder=${valueLabel} value=${text}
        onInput=${(event) => change(index, 1, event.target.value)} spellcheck=${false} autocomplete="off" />
      <button type="button" class="button quiet small" aria-label=${`Remove ${name || index + 1}`}
        onClick=${() => onInput(value.filter((_, at) => at !== index))}><${Icon} name="close" size=${14} /></button>
    </div>`)}
    <button type="button" class="button quiet" onClick=${() => onInput([...value, ["", ""]])}>
      <${Icon} name="plus" size=${14} />${add}
    </button>
  </fieldset>`;
}

/** A search field that changes the query of the address while it is typed in. */
export function SearchField({ label, value, onInput, placeholder }) {
  return html`<div class="search-field">
    <${Icon} name="search" size=${16} />
    <input type="search" aria-label=${label} placeholder=${placeholder ?? label} value=${value ?? ""}
      onInput=${(event) => onInput(event.target.value)} autocomplete="off" spellcheck=${false} />
  </div>`;
}

/** A local time, as the browser writes it. */
export function TimeField({ label, hint, value, onInput }) {
  const change = (event) => onInput(event.target.value);
  return html`<${Field} label=${label} hint=${hint}>
    ${(bound) => html`<input type="datetime-local" value=${value} onChange=${change} ...${bound} />`}
  <//>`;
}

/** A time in the query of the address. */
export function TimeFilter({ label, field, query }) {
  const change = (text) => setQuery({ [field]: fromLocalInput(text) });
  return html`<${TimeField} label=${label} value=${toLocalInput(query[field])} onInput=${change} />`;
}

/** The part of the server's message that is about this field: "`webhook.url`: …". */
export function errorOf(error, field) {
  if (!error || !error.message) return undefined;
  return error.message.startsWith(`\`${field}\``) || error.message.includes(`\`${field}\``) ? error.message : undefined;
}
