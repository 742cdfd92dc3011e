// One stored script: editing it, running it, and what names it.

import { html, useState } from "../core/html.js";
import { del, get, patch, post } from "../core/api.js";
import { managesScripts, manages, may } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { pretty } from "../core/format.js";
import { checkLua, errorsAt } from "../core/lua_check.js";
import { luaScope } from "../core/lua_scope.js";
import { announce, Block, Button, Empty, ErrorBox, Heading, Loading, State, Time } from "../parts/basics.js";
import { ConfirmButton } from "../parts/dialogs.js";
import { Check, Choice, errorOf, Select, Text } from "../parts/forms.js";
import { Editor } from "../parts/editor.js";
import { parsePayload } from "../parts/emit_dialog.js";
import { hasForm, newFields, paramsOf, SchemaFields } from "../parts/schema_form.js";
import { newSample, sampleBody, sampleData, SamplePicker } from "../parts/sample.js";
import { useLeaveWarning } from "./sink_form.js";

export default function ScriptPage({ id }) {
  if (id !== "new") return html`<${StoredScript} id=${id} />`;
  if (!managesScripts.value) return html`<${Empty} title="Scripts are not for you to make">It needs the permission manage_own_scripts.<//>`;
  return html`<${Heading} title="New script" back=${{ href: to("scripts"), name: "Scripts" }} /><${ScriptForm} />`;
}

function StoredScript({ id }) {
  const path = `/api/scripts/${encodeURIComponent(id)}`;
  const { data: script, error, reload, set } = useGet(path);
  const back = { href: to("scripts"), name: "Scripts" };
  if (!script) return html`<${Heading} title="Script" back=${back} />${error ? html`<${ErrorBox} error=${error} retry=${reload} />` : html`<${Loading} />`}`;
  const mayChange = manages(script.owner, "scripts");
  const consequences = async () => {
    const { records, hidden } = await get(`${path}/references`);
    const named = records.map((record) => `The ${record.kind} ${record.name} names it.`);
    if (hidden > 0) named.push(`${hidden} records of others name it.`);
    return named.length > 0 ? [...named, "The server refuses the deletion while anything names it."] : ["Nothing names it.", script.kind === "library" ? "Programs that require it fail from then on." : ""].filter(Boolean);
  };
  const remove = async () => {
    await del(path);
    announce(`${script.name} is deleted.`);
    navigate(to("scripts"));
  };
  return html`<${Heading} title=${script.name} back=${back} subtitle=${html`<${State} value=${script.active ? "active" : "inactive"} /><span>${script.kind}</span><span>${script.owner === "global" ? "global" : "yours"}</span><span>changed <${Time} at=${script.updated_at} mode="relative" /></span>`}>
      ${mayChange && html`<${ConfirmButton} label="Delete" title=${`Delete ${script.name}?`} consequences=${consequences} action=${remove} />`}
    <//>
    <${ScriptForm} script=${script} path=${path} mayChange=${mayChange} onSaved=${set} />`;
}

const STARTS = {
  script: "log.info(event.type)\n", library: "return {\n  loud = function(text) return text:upper() .. \"!\" end,\n}\n", tool: "return { greeting = \"hello \" .. params.name }\n",
};

function ScriptForm({ script, path, mayChange = true, onSaved }) {
  const fresh = () => (script ? { ...script, schema: script.params_schema ? pretty(script.params_schema) : "" } : { name: "", kind: "script", language: "lua", owner: "me", description: "", content: STARTS.script, active: true, schema: "" });
  const [draft, setDraft] = useState(fresh);
  const [sample, setSample] = useState(() => newSample());
  const { isBusy, error, run } = useAction();
  const set = (changes) => setDraft((before) => ({ ...before, ...changes }));
  const chooseKind = (kind) => set({ kind, content: Object.values(STARTS).includes(draft.content) ? STARTS[kind] : draft.content });
  const isChanged = Boolean(script) && ["name", "description", "content", "active", "owner"].some((field) => draft[field] !== script[field]);
  useLeaveWarning(isChanged);
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const { name, description, content, owner, active, kind, language } = draft;
      const body = { name: name.trim(), description, content, owner, active };
      if (kind === "tool") body.params_schema = draft.schema.trim() === "" ? null : parseSchema(draft.schema);
      const saved = script ? await patch(path, body) : await post("/api/scripts", { ...body, kind, language, params_schema: body.params_schema ?? undefined });
      announce("Saved.");
      if (script) onSaved(saved);
      else navigate(to("scripts", saved.id));
    });
  };
  const isLua = draft.language === "lua";
  return html`<form class="sink-form" onSubmit=${save}>
      <div class="stack">
        <section class="panel form">
          <div class="form-row"><${Text} label="Name" value=${draft.name} onInput=${(name) => set({ name })} required readonly=${!mayChange} hint=${draft.kind === "library" ? "Programs load it by this name, such as acme.text." : undefined} error=${errorOf(error, "name")} />
            <${Select} label="Owner" value=${draft.owner} onInput=${(owner) => set({ owner })} disabled=${!mayChange} options=${[["me", "Me"], (may("manage_global_scripts") || draft.owner === "global") && ["global", "Global: everybody uses it"]].filter(Boolean)} /></div>
          <${Text} label="Description" value=${draft.description} onInput=${(description) => set({ description })} readonly=${!mayChange} />
          ${!script && html`<${Choice} legend="Kind" name="kind" value=${draft.kind} onInput=${chooseKind} options=${[["script", "Script"], ["library", "Library"], ["tool", "Tool"]]} />
            ${draft.kind === "library" && html`<${Choice} legend="Language" name="language" value=${draft.language} onInput=${(language) => set({ language })} options=${[["lua", "Lua"], ["python", "Python"]]} />`}`}
          <div class="field"><span>Source</span><${Editor} key=${draft.language} label="Source of the script" lines=${18} readOnly=${!mayChange} language=${isLua ? "lua" : "text"} value=${draft.content} onInput=${(content) => set({ content })} scope=${luaScope(draft.kind, sampleData(sample))} check=${isLua && mayChange ? checkLua : undefined} errors=${errorsAt(error, "content")} /></div>
          ${draft.kind === "tool" && html`<div class="field"><span>JSON Schema of the arguments</span><${Editor} label="JSON Schema of the arguments" language="json" lines=${6} readOnly=${!mayChange} value=${draft.schema} onInput=${(schema) => set({ schema })} /></div>`}
          <${Check} label="Active" hint="An inactive script is kept and not run." value=${draft.active} onInput=${(active) => set({ active })} disabled=${!mayChange} />
          <${ErrorBox} error=${error} />
          ${mayChange && html`<div class="form-actions"><${Button} type="submit" kind="primary" busy=${isBusy} disabled=${Boolean(script) && !isChanged && draft.schema === (script.params_schema ? pretty(script.params_schema) : "")}>${script ? "Save" : "Store"}<//></div>`}
        </section>
      </div>
      <div class="stack sticky">
        ${script ? html`<${RunPanel} script=${script} path=${path} isChanged=${isChanged} sample=${sample} setSample=${setSample} /><${References} path=${path} />` : html`<section class="panel"><h2>Run</h2><p class="muted">Once it is stored, it can be run here.</p></section>`}
      </div>
    </form>`;
}

function parseSchema(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The schema is not JSON: ${error.message}`);
  }
}

function References({ path }) {
  const { data } = useGet(`${path}/references`);
  const pages = { sink: "sinks", space: "spaces" };
  return html`<section class="panel"><h2>Who uses it</h2>
    ${data && data.records.length === 0 && data.hidden === 0 && html`<p class="muted">No sink, space or template names it.</p>`}
    <ul class="plain-list">${(data?.records ?? []).map((record) => html`<li key=${record.id}><span class="tag">${record.kind}</span>${pages[record.kind] ? html`<a href=${to(pages[record.kind], record.id)}>${record.name}</a>` : record.name}</li>`)}</ul>
    ${data?.hidden > 0 && html`<p class="muted">and ${data.hidden} of others</p>`}
  </section>`;
}

function RunPanel({ script, path, isChanged, sample, setSample }) {
  const schema = script.params_schema;
  const withForm = script.kind === "tool" && hasForm(schema);
  const [fields, setFields] = useState(() => (withForm ? newFields(schema) : {}));
  const [text, setText] = useState("{}");
  const [result, setResult] = useState(null);
  const { isBusy, error, run } = useAction();
  const mayRun = script.kind === "tool" ? may("manage_own_scripts", "manage_global_scripts", "use_mcp_server") : managesScripts.value;
  if (script.kind === "library" || script.language !== "lua" || !mayRun) return null;
  const start = () => run(async () => {
    setResult(null);
    const body = script.kind === "script" ? sampleBody(sample) : { params: withForm ? paramsOf(schema, fields) : parsePayload(text) };
    setResult(await post(`${path}/run`, body));
  });
  return html`<section class="panel form"><h2>Run</h2>
    ${isChanged && html`<p class="muted">The stored version runs: save first to run your changes.</p>`}
    ${script.kind === "script" ? html`<${SamplePicker} sample=${sample} onChange=${setSample} />` : withForm ? html`<${SchemaFields} schema=${schema} fields=${fields} onChange=${setFields} />` : html`<div class="field"><span>Arguments</span><${Editor} label="Arguments as JSON" language="json" lines=${6} value=${text} onInput=${setText} /></div>`}
    <div class="form-actions"><${Button} icon="play" kind="primary" busy=${isBusy} onClick=${start}>Run<//></div>
    <div aria-live="polite"><${ErrorBox} error=${error} />${result && html`<div class="stack">
      <div class="side-by-side"><${State} value=${result.outcome} /><span class="muted">${result.cpu_ms.toFixed(2)} ms of processor time</span></div>
      ${result.error && html`<${Block} text=${result.error.message} label="Error" />`}
      ${result.result !== undefined && html`<${Block} text=${pretty(result.result)} label="Result" />`}
      ${result.log.length > 0 && html`<div><h3>Log</h3><${Block} text=${result.log.join("\n")} label="Log" /></div>`}
    </div>`}</div>
  </section>`;
}
