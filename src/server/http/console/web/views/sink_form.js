// Making and changing a sink: a form that mirrors the TOML, the preview of what it would send, and the TOML itself.

import { html, useEffect, useState } from "../core/html.js";
import { all, patch, post } from "../core/api.js";
import { may } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useDebounced, useResource } from "../core/resource.js";
import { capabilities } from "../core/capabilities.js";
import { pretty } from "../core/format.js";
import { changesOf, draftOf, newDraft, specOf, tomlOf } from "../core/sink_draft.js";
import { checkExpression, checkLua, errorsAt } from "../core/lua_check.js";
import { luaScope } from "../core/lua_scope.js";
import { toToml } from "../core/toml.js";
import { announce, Block, Button, ErrorBox, Heading } from "../parts/basics.js";
import { Check, Choice, errorOf, Pairs, Select, Text } from "../parts/forms.js";
import { Editor } from "../parts/editor.js";
import { newSample, sampleBody, sampleData, SamplePicker } from "../parts/sample.js";

export function SinkForm({ sink, onSaved, eventId }) {
  const [draft, setDraft] = useState(() => (sink ? draftOf(sink) : newDraft()));
  const [sample, setSample] = useState(() => newSample(eventId));
  const { isBusy, error, run, clear } = useAction();
  const set = (changes) => {
    setDraft((before) => ({ ...before, ...changes }));
    if (error) clear();
  };
  const spec = specOf(draft);
  const isChanged = !sink || Object.keys(changesOf(sink, spec)).length > 0;
  useLeaveWarning(Boolean(sink) && isChanged);
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const saved = sink ? await patch(`/api/event-sinks/${sink.id}`, changesOf(sink, spec)) : await post("/api/event-sinks", spec);
      announce(sink ? "Saved." : `The sink ${saved.name} is made.`);
      if (sink) {
        setDraft(draftOf(saved));
        onSaved(saved);
      } else {
        navigate(to("sinks", saved.id));
      }
    });
  };
  return html`${!sink && html`<${Heading} title="New sink" back=${{ href: to("sinks"), name: "Sinks" }} />`}
    <form class="sink-form" onSubmit=${save}>
      <div class="stack">
        <section class="panel form">
          <${General} draft=${draft} set=${set} error=${error} isNew=${!sink} />
        </section>
        <section class="panel form">
          ${draft.type === "webhook" && html`<${Webhook} draft=${draft} set=${set} error=${error} sample=${sample} isNew=${!sink} />`}
          ${draft.type === "script" && html`<${Script} draft=${draft} set=${set} error=${error} sample=${sample} />`}
          ${draft.type === "json-rpc" && html`<${Formatter} draft=${draft} set=${set} error=${error} sample=${sample} />`}
        </section>
        ${draft.type !== "json-rpc" && html`<${Flow} draft=${draft} set=${set} error=${error} />`}
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
        <details class="panel"><summary><strong>As TOML</strong></summary><p class="hint spaced">For a file that <code>svc sink apply</code> reads.</p><${Block} text=${toToml(tomlOf(spec))} label="TOML" /></details>
      </div>
    </form>`;
}

/** Asks before the page is closed with unsaved changes. */
export function useLeaveWarning(isChanged) {
  useEffect(() => {
    if (!isChanged) return undefined;
    const ask = (event) => event.preventDefault();
    window.addEventListener("beforeunload", ask);
    return () => window.removeEventListener("beforeunload", ask);
  }, [isChanged]);
}

function General({ draft, set, error, isNew }) {
  const owners = [["me", "Me: my own events"], may("manage_global_event_sinks") && ["global", "Global: everybody's events"]].filter(Boolean);
  return html`<div class="form-row">
      <${Text} label="Name" value=${draft.name} onInput=${(name) => set({ name })} required maxlength="64" error=${errorOf(error, "name")} />
      <${Select} label="Owner" value=${draft.owner} onInput=${(owner) => set({ owner })} options=${owners} />
    </div>
    <${Text} label="Description" value=${draft.description} onInput=${(description) => set({ description })} error=${errorOf(error, "description")} />
    ${isNew && html`<${Choice} legend="Type" name="type" value=${draft.type} onInput=${(type) => set({ type })} options=${[["webhook", "Webhook"], ["script", "Script"], ["json-rpc", "Formatter (json-rpc)"]]} />`}
    <${Text} label="Events" hint="Patterns separated by commas: space.*, custom.deploy.*, custom.build.done, or * for all." value=${draft.events} onInput=${(events) => set({ events })} required error=${errorOf(error, "events")} placeholder="custom.deploy.*" />
    <div class="field"><span>Filter</span>
      <${Editor} label="Filter, a Lua expression" lines=${1} value=${draft.filter} onInput=${(filter) => set({ filter })} scope=${luaScope("filter")} check=${checkExpression} errors=${errorsAt(error, "filter")} />
      <div class="hint">A Lua expression, such as <code>event.data.branch == "main"</code>. An event for which it is false is not for this sink.</div>
    </div>
    <${Check} label="Active" hint="An inactive sink keeps its events in the queue." value=${draft.active} onInput=${(active) => set({ active })} />`;
}

function Webhook({ draft, set, error, sample, isNew }) {
  return html`<h2>Webhook</h2>
    <${Text} label="Address" type="url" value=${draft.url} onInput=${(url) => set({ url })} required placeholder="https://example.com/hook" error=${errorOf(error, "webhook.url")} />
    <${Pairs} legend="Headers" add="Add a header" hint=${draft.owner === "global" ? "A value such as {\"env\": \"NAME\"}, {\"file\": \"/path\"} or {\"credential\": \"NAME\"} is read on the server at each delivery." : undefined} value=${draft.headers} onInput=${(headers) => set({ headers })} />
    <${Choice} legend="Body" name="body" value=${draft.bodyMode} onInput=${(bodyMode) => set({ bodyMode })} options=${[["default", "Default"], ["full", "The whole event"], ["template", "Template"]]} />
    ${draft.bodyMode === "template" && html`<${Template} label="Template of the body" value=${draft.template} onInput=${(template) => set({ template })} sample=${sample} errors=${errorsAt(error, "webhook.template")} />`}
    <${Text} label="Secret" value=${draft.secret} onInput=${(secret) => set({ secret })} placeholder=${isNew ? "made by the server" : "unchanged"} hint="whsec_… as Standard Webhooks writes it. Leave it empty to have one made or keep the present one." error=${errorOf(error, "webhook.secret")} />
    <${Check} label="Sign with Ed25519 too" hint="Receivers then verify with a public key." value=${draft.ed25519} onInput=${(ed25519) => set({ ed25519 })} />
    <${Check} label="Accept any certificate" hint="The connection is encrypted, but could end anywhere. For tests only." value=${draft.skipTls} onInput=${(skipTls) => set({ skipTls })} />`;
}

/** How events flow: batches, failures, the service's own reports. */
function Flow({ draft, set, error }) {
  const { data: offers } = useResource(capabilities, []);
  if (!offers?.sinkFields.has("on_failure")) return null;
  const isWebhook = draft.type === "webhook";
  return html`<section class="panel form"><h2>Flow</h2>
    <${Choice} legend="After the last attempt" name="on-failure" value=${draft.onFailure} onInput=${(onFailure) => set({ onFailure })} options=${[["dead-letter", "Dead letter"], ["hold", "Hold: keep trying, in order"]]} />
    ${isWebhook && offers.webhookFields.has("batch") && html`<div class="form-row">
      <${Text} label="Events in one request" type="number" min="1" max="100" placeholder="1" value=${draft.batchMax} onInput=${(batchMax) => set({ batchMax })} error=${errorOf(error, "webhook.batch.max")} />
      <${Text} label="Wait for others" placeholder="not at all; 500ms, 2s" value=${draft.batchWait} onInput=${(batchWait) => set({ batchWait })} error=${errorOf(error, "webhook.batch.wait")} />
    </div>`}
    ${isWebhook && offers.webhookFields.has("gone") && html`<${Select} label="On the status 410 Gone" value=${draft.gone} onInput=${(gone) => set({ gone })} options=${[["retry", "try again, as on other failures"], ["pause", "pause the sink"]]} />`}
    ${offers.sinkFields.has("internal") && html`<${Check} label="The pattern * includes the service's own reports" hint="Such as sink.failing or agent.lost. Patterns like sink.* always do." value=${draft.internal} onInput=${(internal) => set({ internal })} />`}
  </section>`;
}

function Template({ label, value, onInput, sample, errors }) {
  const isLua = value.lang === "lua";
  return html`<${Choice} legend="Language" name=${`lang-${label}`} value=${value.lang} onInput=${(lang) => onInput({ ...value, lang })} options=${[["lua", "Lua"], ["text", "Text with ${{ Lua }}"]]} />
    <div class="field"><span>${label}</span>
      <${Editor} key=${value.lang} label=${label} language=${isLua ? "lua" : "text"} value=${value.source} onInput=${(source) => onInput({ ...value, source })} scope=${luaScope("template", sampleData(sample))} check=${isLua ? checkLua : undefined} errors=${errors} />
      <div class="hint">${isLua ? "A chunk that returns a table, sent as JSON, or a string, sent as it is." : "Each ${{ expression }} is replaced by its value."} In scope: event, space, actor, custom and the pure libraries.</div>
    </div>`;
}

function Script({ draft, set, error, sample }) {
  const stored = useResource(() => all("/api/scripts", { kind: "script" }), []);
  const options = (stored.data ?? []).filter((script) => draft.owner !== "global" || script.owner === "global").map((script) => [script.id, script.owner === "global" ? `${script.name} (global)` : script.name]);
  return html`<h2>Script</h2>
    <${Choice} legend="Lua" name="script-mode" value=${draft.scriptMode} onInput=${(scriptMode) => set({ scriptMode })} options=${[["source", "Written here"], ["stored", "A stored script"]]} />
    ${draft.scriptMode === "stored" ? html`<${Select} label="Stored script" value=${draft.scriptId} onInput=${(scriptId) => set({ scriptId })} options=${[["", "choose one"], ...options]} error=${errorOf(error, "script.script_id")} hint=${html`Stored scripts are under <a href=${to("scripts")}>Scripts</a>.`} />`
      : html`<div class="field"><span>Source</span>
        <${Editor} label="Lua of the script" lines=${16} value=${draft.scriptSource} onInput=${(scriptSource) => set({ scriptSource })} scope=${luaScope("script", sampleData(sample))} check=${checkLua} errors=${errorsAt(error, "script.source")} />
        <div class="hint">Returning normally is success; error(…) fails the attempt; svc.retry, svc.skip and svc.dead decide otherwise.</div>
      </div>`}`;
}

function Formatter({ draft, set, error, sample }) {
  return html`<h2>Formatter</h2><p class="muted">It receives nothing itself: methods name it in <code>event_sinks</code>, and it shapes the events they get.</p>
    <${Template} label="Template" value=${draft.formatter} onInput=${(formatter) => set({ formatter })} sample=${sample} errors=${errorsAt(error, "template")} />`;
}

/** What the sink would send for the sample, rendered by the server shortly after typing stops. */
function Preview({ spec, sample }) {
  const request = useDebounced(JSON.stringify({ spec: { ...spec, secret: undefined }, sample: { ...sample, data: undefined } }), 500);
  const isScript = spec.type === "script";
  const preview = useResource(async () => {
    if (isScript || (sample.mode === "recorded" && !sample.eventId)) return null;
    const sink = { ...spec, name: spec.name || "preview", events: spec.events || "*" };
    if (sink.webhook && !sink.webhook.url) sink.webhook = { ...sink.webhook, url: "https://example.com" };
    return post("/api/event-sinks/preview", { sink, ...sampleBody(sample) });
  }, [request]);
  if (isScript) return html`<p class="muted">A script sends what it wants to, so there is nothing to render. Once it is saved, try it under Test. Its errors are marked while you type.</p>`;
  return html`<div class="preview-body" aria-live="polite" aria-busy=${preview.isLoading}>
    ${preview.error ? html`<${ErrorBox} error=${preview.error} />` : preview.data ? html`<${Block} text=${pretty(preview.data.body)} label="Body that would be sent" /><div class="hint">${preview.data.content_type}</div>` : html`<p class="muted">Choose an event to see the body.</p>`}
  </div>`;
}
