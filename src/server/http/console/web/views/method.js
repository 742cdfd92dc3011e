// One method: its schemas, the spaces that serve it, and a call with a form made of its schema.

import { html, useState } from "../core/html.js";
import { LONG, post } from "../core/api.js";
import { may, user, usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { duration, pretty } from "../core/format.js";
import { announce, Block, Button, ErrorBox, Fact, Facts, Heading, ListError, Loading, State } from "../parts/basics.js";
import { Choice } from "../parts/forms.js";
import { Editor } from "../parts/editor.js";
import { parsePayload } from "../parts/emit_dialog.js";
import { hasForm, newFields, paramsOf, SchemaFields } from "../parts/schema_form.js";

/** The interval at which the method is read anew, in milliseconds. */
const EVERY = 5000;

export default function MethodPage({ id: name }) {
  const { data: method, error, reload, loadedAt } = useGet(`/api/methods/${encodeURIComponent(name)}`, {}, { every: EVERY });
  const back = { href: to("methods"), name: "Methods" };
  const failure = html`<${ListError} error=${error} retry=${reload} loadedAt=${method && loadedAt} />`;
  if (!method) return html`<${Heading} title=${name} back=${back} />${error ? failure : html`<${Loading} />`}`;
  const mayCall = may("use_methods") || method.owner === user.value.name;
  const subtitle = html`<${State} value=${method.available_count > 0 ? "active" : "away"} /><span>${method.scope}</span>
    <span>of ${method.owner}</span>${method.mcp_tool && html`<span class="tag">MCP tool</span>`}`;
  return html`<${Heading} title=${method.name} back=${back} subtitle=${subtitle} />${failure}
    <div class="columns">
      <div class="stack">
        <${About} method=${method} />
        ${method.providers?.length > 0 && html`<${Providers} providers=${method.providers} />`}
        <${Schema} title="Params" schema=${method.params_schema} /><${Schema} title="Result" schema=${method.result_schema} />
      </div>
      ${mayCall ? html`<${CallForm} method=${method} />` : html`<${NoCall} />`}
    </div>`;
}

function NoCall() {
  return html`<section class="panel"><h2>Call</h2><p class="muted">Calling methods of others needs the permission use_methods.</p>
    </section>`;
}

function About({ method }) {
  return html`<section class="panel"><h2>About</h2><p>${method.description}</p>
    <div class="tags spaced">${method.keywords.map((word) => html`<span class="tag" key=${word}>${word}</span>`)}</div>
    <${Facts}>
      <${Fact} name="Groups">${method.groups.map((group) => group.name).join(", ")}<//>
      <${Fact} name="Subscribed to">${method.events.length > 0 && html`<code>${method.events.join(", ")}</code>`}<//>
      <${Fact} name="Served by">${method.available_count} of ${method.provider_count} spaces<//>
    <//>
  </section>`;
}

/** The spaces that serve the method, as links if the user may look at spaces. */
function Providers({ providers }) {
  const space = (provider) => (usesSpaces.value ? html`<a class="grow" href=${to("spaces", provider.space_id)}>${provider.space}</a>`
    : html`<span class="grow">${provider.space}</span>`);
  return html`<section class="panel"><h2>Spaces that serve it</h2><ul class="plain-list">
    ${providers.map((provider) => html`<li key=${provider.space_id}>
      <${State} value=${provider.health} />${space(provider)}
      <span class="muted">${provider.reason ?? `${provider.in_flight} in flight`}</span>
    </li>`)}
  </ul></section>`;
}

function Schema({ title, schema }) {
  if (!schema) return null;
  return html`<section class="panel"><h2>${title}</h2>
    ${hasForm(schema) && html`<${Properties} schema=${schema} />`}
    <details class="spaced"><summary>JSON Schema</summary><${Block} text=${pretty(schema)} label=${`${title} schema`} /></details>
  </section>`;
}

function Properties({ schema }) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return html`<table class="schema-table"><thead><tr><th>Name</th><th>Type</th><th>Meaning</th></tr></thead><tbody>
    ${Object.entries(schema.properties).map(([name, property]) => html`<tr key=${name}>
      <td><code>${name}</code>${required.has(name) ? " *" : ""}</td>
      <td>${[].concat(property?.type ?? "any").join(" or ")}</td>
      <td>${property?.description ?? ""}</td>
    </tr>`)}
  </tbody></table>`;
}

function CallForm({ method }) {
  const schema = method.params_schema;
  const [mode, setMode] = useState(hasForm(schema) ? "form" : "json");
  const [fields, setFields] = useState(() => (hasForm(schema) ? newFields(schema) : {}));
  const [text, setText] = useState("{}");
  const [answer, setAnswer] = useState(null);
  const { isBusy, error, run } = useAction();
  const toJson = () => {
    try {
      setText(pretty(paramsOf(schema, fields).text));
    } catch (error) {
      announce(`The text stays as it was: ${error.message}`, "bad");
    }
  };
  const choose = (next) => {
    if (next === "json") toJson();
    setMode(next);
  };
  const call = (event) => {
    event.preventDefault();
    run(async () => {
      setAnswer(null);
      const params = mode === "form" ? paramsOf(schema, fields) : parsePayload(text);
      const started = performance.now();
      const options = { limit: LONG, texts: ["error", "result"] };
      const response = await post("/api/methods/call", { jsonrpc: "2.0", method: method.name, params, id: 1 }, options);
      setAnswer({ ...response, time: performance.now() - started });
    });
  };
  return html`<section class="panel"><h2>Call</h2><form class="form" onSubmit=${call}>
    ${hasForm(schema) && html`<${Choice} legend="Params" name="call-mode" value=${mode} onInput=${choose}
      options=${[["form", "Form"], ["json", "JSON"]]} />`}
    ${mode === "form" ? html`<${SchemaFields} schema=${schema} fields=${fields} onChange=${setFields} />`
      : html`<div class="field"><span>Params</span>
        <${Editor} label="Params as JSON" language="json" lines=${8} value=${text} onInput=${setText} />
      </div>`}
    <${ErrorBox} error=${error} />
    <div class="form-actions"><${Button} type="submit" kind="primary" icon="play" busy=${isBusy}>Call<//></div>
  </form>
  <div class="spaced" aria-live="polite">${answer && html`<${CallAnswer} answer=${answer} />`}</div>
  </section>`;
}

function CallAnswer({ answer }) {
  return html`<div class="side-by-side">
      <${State} value=${answer.error ? "failed" : "done"} /><span class="muted">${duration(answer.time)}, there and back</span>
    </div>
    ${answer.error ? html`<${Block} text=${pretty(answer.texts.error)} label="Error" />`
      : html`<${Block} text=${pretty(answer.texts.result ?? "null")} label="Result" />`}`;
}
