// Making and changing a sink: a form that mirrors the TOML, the preview of what it would send, and the TOML itself.

import { html, useState } from "../core/html.js";
import { all, patch, post } from "../core/api.js";
import { may } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useGet, useResource } from "../core/resource.js";
import { changesOf, draftOf, newDraft, specOf, tomlOf } from "../core/sink_draft.js";
import { checkExpression, checkLua, errorsAt } from "../core/lua_check.js";
import { luaModules, luaScope } from "../core/lua_scope.js";
import { toToml } from "../core/toml.js";
import { announce, Block, Button, CutNote, ErrorBox, Heading } from "../parts/basics.js";
import { Check, Choice, errorOf, Pairs, Select, Text } from "../parts/forms.js";
import { Editor } from "../parts/editor.js";
import { useLeaveQuestion } from "../parts/leaving.js";
import { Preview } from "../parts/preview.js";
import { sampleData, SamplePicker, useSample } from "../parts/sample.js";
import { TemplateEditor } from "../parts/template_editor.js";

export function SinkForm({ sink, onSaved }) {
  const [draft, setDraft] = useState(() => (sink ? draftOf(sink) : newDraft()));
  const [sample, setSample] = useSample();
  const { isBusy, error, run, clear } = useAction();
  const set = (changes) => {
    setDraft((before) => ({ ...before, ...changes }));
    if (error) clear();
  };
  const spec = specOf(draft);
  const isChanged = sink ? Object.keys(changesOf(sink, spec)).length > 0 : JSON.stringify(draft) !== JSON.stringify(newDraft());
  useLeaveQuestion(isChanged);
  const scriptId = spec.script?.script_id;
  const script = useGet(scriptId ? `/api/scripts/${encodeURIComponent(scriptId)}` : null);
  const scriptName = script.data?.id === scriptId ? script.data?.name : undefined;
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const saved = sink ? await patch(`/api/event-sinks/${sink.id}`, changesOf(sink, spec)) : await post("/api/event-sinks", spec);
      announce(sink ? "Saved." : `The sink ${saved.name} is made.`);
      if (!sink) return navigate(to("sinks", saved.id), { isSaved: true });
      setDraft(draftOf(saved));
      return onSaved(saved);
    });
  };
  const parts = { draft, set, error, data: sampleData(sample), isNew: !sink };
  return html`${!sink && html`<${Heading} title="New sink" back=${{ href: to("sinks"), name: "Sinks" }} />`}
    <form class="sink-form" onSubmit=${save}>
      <div class="stack">
        <section class="panel form"><${General} ...${parts} /></section>
        <section class="panel form"><${Target} ...${parts} /></section>
        ${draft.type !== "json-rpc" && html`<${Flow} ...${parts} />`}
        <${ErrorBox} error=${error} />
        <div class="form-actions">
          <${Button} type="submit" kind="primary" busy=${isBusy} disabled=${!isChanged}>${sink ? "Save" : "Make the sink"}<//>
          ${sink && isChanged && html`<${Button} onClick=${() => setDraft(draftOf(sink))}>Undo the changes<//>`}
        </div>
      </div>
      <div class="stack sticky">
        <section class="panel form" aria-labelledby="preview-title"><h2 id="preview-title">Preview</h2>
          <${Preview} spec=${spec} sample=${sample} />
          <${SamplePicker} sample=${sample} onChange=${setSample} pattern=${draft.events} />
        </section>
        <details class="panel"><summary><strong>As TOML</strong></summary>
          <p class="hint spaced">For a file that <code>svc sink apply</code> reads.</p>
          <${Block} text=${toToml(tomlOf(spec, { sink, scriptName }))} label="TOML" />
        </details>
      </div>
    </form>`;
}

const TYPES = [["webhook", "Webhook"], ["script", "Script"], ["json-rpc", "Formatter (json-rpc)"]];
const EVENTS_HINT = "Patterns separated by commas: space.*, custom.deploy.*, custom.build.done, or * for all.";

function General({ draft, set, error, data, isNew }) {
  const owners = [["me", "Me: my own events"], may("manage_global_event_sinks")
    && ["global", "Global: everybody's events"]].filter(Boolean);
  return html`<div class="form-row">
      <${Text} label="Name" value=${draft.name} onInput=${(name) => set({ name })} required maxlength="64"
        error=${errorOf(error, "name")} />
      <${Select} label="Owner" value=${draft.owner} onInput=${(owner) => set({ owner })} options=${owners} />
    </div>
    <${Text} label="Description" value=${draft.description} onInput=${(description) => set({ description })}
      error=${errorOf(error, "description")} />
    ${isNew && html`<${Choice} legend="Type" name="type" value=${draft.type} onInput=${(type) => set({ type })} options=${TYPES} />`}
    <${Text} label="Events" hint=${EVENTS_HINT} value=${draft.events} onInput=${(events) => set({ events })} required
      error=${errorOf(error, "events")} placeholder="custom.deploy.*" />
    <div class="field"><span>Filter</span>
      <${Editor} label="Filter, a Lua expression" lines=${1} value=${draft.filter} onInput=${(filter) => set({ filter })}
        scope=${luaScope("filter", data)} check=${checkExpression} errors=${errorsAt(error, "filter")} />
      <div class="hint">
        A Lua expression, such as <code>event.data.branch == "main"</code>. An event for which it is false is not for this sink.
      </div>
    </div>
    <${Check} label="Active" hint="An inactive sink keeps its events in the queue." value=${draft.active}
      onInput=${(active) => set({ active })} />`;
}

/** Where the events go, by the type of the sink. */
function Target(parts) {
  if (parts.draft.type === "webhook") return html`<${Webhook} ...${parts} />`;
  return parts.draft.type === "script" ? html`<${Script} ...${parts} />` : html`<${Formatter} ...${parts} />`;
}

const BODIES = [["default", "Default"], ["full", "The whole event"], ["template", "Template"]];
const REFERENCES = 'A value such as {"env": "NAME"}, {"file": "/path"} or {"credential": "NAME"} is read on the server at each delivery.';

function Webhook({ draft, set, error, data, isNew }) {
  return html`<h2>Webhook</h2>
    <${Text} label="Address" type=${draft.url.startsWith("{") ? "text" : "url"} value=${draft.url} onInput=${(url) => set({ url })} required
      placeholder="https://example.com/hook" error=${errorOf(error, "webhook.url")} />
    <${Pairs} legend="Headers" add="Add a header" hint=${draft.owner === "global" ? REFERENCES : undefined} value=${draft.headers}
      onInput=${(headers) => set({ headers })} />
    <${Choice} legend="Body" name="body" value=${draft.bodyMode} onInput=${(bodyMode) => set({ bodyMode })} options=${BODIES} />
    ${draft.bodyMode === "template" && html`<${TemplateEditor} label="Template of the body" value=${draft.template}
      onInput=${(template) => set({ template })} place=${draft.batchMax === "" ? "template" : "batch"} data=${data}
      errors=${errorsAt(error, "webhook.template")} />`}
    <${Text} label="Secret" value=${draft.secret} onInput=${(secret) => set({ secret })}
      placeholder=${isNew ? "made by the server" : "unchanged"}
      hint="whsec_… as Standard Webhooks writes it. Leave it empty to have one made or keep the present one."
      error=${errorOf(error, "webhook.secret")} />
    <${Check} label="Sign with Ed25519 too" hint="Receivers then verify with a public key." value=${draft.ed25519}
      onInput=${(ed25519) => set({ ed25519 })} />
    <${Check} label="Accept any certificate" hint="The connection is encrypted, but could end anywhere. For tests only."
      value=${draft.skipTls}
      onInput=${(skipTls) => set({ skipTls })} />`;
}

const FAILURES = [["dead-letter", "Dead letter"], ["hold", "Hold: keep trying, in order"]];
const GONE = [["retry", "try again, as on other failures"], ["pause", "pause the sink"]];

/** How events flow: batches, failures, the service's own reports. */
function Flow({ draft, set, error }) {
  return html`<section class="panel form"><h2>Flow</h2>
    <${Choice} legend="After the last attempt" name="on-failure" value=${draft.onFailure} onInput=${(onFailure) => set({ onFailure })}
      options=${FAILURES} />
    ${draft.type === "webhook" && html`<div class="form-row">
        <${Text} label="Events in one request" type="number" min="1" max="100" placeholder="1" value=${draft.batchMax}
          onInput=${(batchMax) => set({ batchMax })} error=${errorOf(error, "webhook.batch.max")} />
        <${Text} label="Wait for others" placeholder="not at all; 500ms, 2s" value=${draft.batchWait}
          onInput=${(batchWait) => set({ batchWait })} error=${errorOf(error, "webhook.batch.wait")} />
      </div>
      <${Select} label="On the status 410 Gone" value=${draft.gone} onInput=${(gone) => set({ gone })} options=${GONE} />`}
    <${Check} label="The pattern * includes the service's own reports"
      hint="Such as sink.failing or agent.lost. Patterns like sink.* always do."
      value=${draft.internal} onInput=${(internal) => set({ internal })} />
  </section>`;
}

function Script({ draft, set, error, data }) {
  const modes = [["source", "Written here"], ["stored", "A stored script"]];
  return html`<h2>Script</h2>
    <${Choice} legend="Lua" name="script-mode" value=${draft.scriptMode} onInput=${(scriptMode) => set({ scriptMode })} options=${modes} />
    ${draft.scriptMode === "stored" ? html`<${StoredScript} draft=${draft} set=${set} error=${error} />` : html`<div class="field">
      <span>Source</span>
      <${Editor} label="Lua of the script" lines=${16} value=${draft.scriptSource} onInput=${(scriptSource) => set({ scriptSource })}
        scope=${luaScope("script", data)} modules=${luaModules("script")} check=${checkLua} errors=${errorsAt(error, "script.source")} />
      <div class="hint">Returning normally is success; error(…) fails the attempt; svc.retry, svc.skip and svc.dead decide otherwise.</div>
    </div>`}`;
}

function StoredScript({ draft, set, error }) {
  const stored = useResource(() => all("/api/scripts", { kind: "script" }), []);
  const usable = (stored.data ?? []).filter((script) => draft.owner !== "global" || script.owner === "global");
  const options = usable.map((script) => [script.id, script.owner === "global" ? `${script.name} (global)` : script.name]);
  const first = stored.data ? "choose one" : "loading…";
  return html`<${Select} label="Stored script" value=${draft.scriptId} onInput=${(scriptId) => set({ scriptId })}
    options=${[["", first], ...options]}
      error=${errorOf(error, "script.script_id")} hint=${html`Stored scripts are under <a href=${to("scripts")}>Scripts</a>.`} />
    <${CutNote} items=${stored.data}>Write the others into the sink's TOML by name.<//>
    <${ErrorBox} error=${stored.error} retry=${stored.reload} />`;
}

function Formatter({ draft, set, error, data }) {
  return html`<h2>Formatter</h2>
    <p class="muted">It receives nothing itself: methods name it in <code>event_sinks</code>, and it shapes the events they get.</p>
    <${TemplateEditor} label="Template" value=${draft.formatter} onInput=${(formatter) => set({ formatter })} data=${data}
      errors=${errorsAt(error, "template")} />`;
}
