// One stored script: editing it, running it, and what names it.

import { html, useState } from "../core/html.js";
import { del, get, LONG, patch, post } from "../core/api.js";
import { managesScripts, managesSinks, manages, may, usesSpaces } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { pretty } from "../core/format.js";
import { JsonText } from "../core/json.js";
import { checkLua, errorsAt } from "../core/lua_check.js";
import { luaModules, luaScope } from "../core/lua_scope.js";
import { announce, Block, Button, Empty, ErrorBox, Heading, Loading, State, Time } from "../parts/basics.js";
import { ConfirmButton } from "../parts/dialogs.js";
import { Check, Choice, errorOf, Select, Text } from "../parts/forms.js";
import { Editor } from "../parts/editor.js";
import { parsePayload } from "../parts/emit_dialog.js";
import { useLeaveQuestion } from "../parts/leaving.js";
import { hasForm, newFields, paramsOf, SchemaFields } from "../parts/schema_form.js";
import { sampleBody, sampleData, SamplePicker, useSample } from "../parts/sample.js";

export default function ScriptPage({ id }) {
  if (id !== "new") return html`<${StoredScript} id=${id} />`;
  if (!managesScripts.value) return html`<${Empty} title="Scripts are not for you to make">It needs the permission manage_own_scripts.<//>`;
  return html`<${Heading} title="New script" back=${{ href: to("scripts"), name: "Scripts" }} /><${ScriptForm} />`;
}

function StoredScript({ id }) {
  const path = `/api/scripts/${encodeURIComponent(id)}`;
  const { data: script, error, reload, set } = useGet(path);
  const back = { href: to("scripts"), name: "Scripts" };
  const failure = html`<${ErrorBox} error=${error} retry=${reload} />`;
  if (!script) return html`<${Heading} title="Script" back=${back} />${error ? failure : html`<${Loading} />`}`;
  const mayChange = manages(script.owner, "scripts");
  const subtitle = html`<${State} value=${script.active ? "active" : "inactive"} /><span>${script.kind}</span>
    <span>${script.owner === "global" ? "global" : "yours"}</span><span>changed <${Time} at=${script.updated_at} mode="relative" /></span>`;
  return html`<${Heading} title=${script.name} back=${back} subtitle=${subtitle}>
      ${mayChange && html`<${DeleteButton} script=${script} path=${path} />`}
    <//>
    ${failure}<${ScriptForm} script=${script} path=${path} mayChange=${mayChange} onSaved=${set} />`;
}

function DeleteButton({ script, path }) {
  const consequences = async () => {
    const { records, hidden } = await get(`${path}/references`);
    const named = records.map((record) => `The ${record.kind} ${record.name} names it.`);
    if (hidden > 0) named.push(`${hidden} records of others name it.`);
    if (named.length > 0) return [...named, "The server refuses the deletion while anything names it."];
    return script.kind === "library" ? ["Nothing names it.", "Programs that require it fail from then on."] : ["Nothing names it."];
  };
  const remove = async () => {
    await del(path);
    announce(`${script.name} is deleted.`);
    navigate(to("scripts"), { isSaved: true });
  };
  return html`<${ConfirmButton} label="Delete" title=${`Delete ${script.name}?`} consequences=${consequences} action=${remove} />`;
}

const STARTS = {
  script: "log.info(event.type)\n",
  library: "return {\n  loud = function(text) return text:upper() .. \"!\" end,\n}\n",
  tool: "return { greeting = \"hello \" .. params.name }\n",
};
const KINDS = [["script", "Script"], ["library", "Library"], ["tool", "Tool"]];
const LANGUAGES = [["lua", "Lua"], ["python", "Python"]];

function newDraft() {
  return { name: "", kind: "script", language: "lua", owner: "me", description: "", content: STARTS.script, active: true, schema: "" };
}

const draftOf = (script) => ({ ...script, schema: script.params_schema ? pretty(script.params_schema) : "" });

/** The fields of a draft that the form changes. */
const EDITED = ["name", "kind", "language", "owner", "description", "content", "active", "schema"];

function ScriptForm({ script, path, mayChange = true, onSaved }) {
  const stored = script ? draftOf(script) : newDraft();
  const [draft, setDraft] = useState(stored);
  const [sample, setSample] = useSample();
  const { isBusy, error, run } = useAction();
  const set = (changes) => setDraft((before) => ({ ...before, ...changes }));
  const isChanged = EDITED.some((field) => draft[field] !== stored[field]);
  useLeaveQuestion(mayChange && isChanged);
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const { name, description, content, owner, active, kind, language } = draft;
      const body = { name: name.trim(), description, content, owner, active };
      const isSchemaChanged = draft.schema !== stored.schema;
      if (kind === "tool" && isSchemaChanged) body.params_schema = draft.schema.trim() === "" ? null : parseSchema(draft.schema);
      const made = { ...body, kind, language, params_schema: body.params_schema ?? undefined };
      const saved = script ? await patch(path, body) : await post("/api/scripts", made);
      announce("Saved.");
      if (!script) return navigate(to("scripts", saved.id), { isSaved: true });
      setDraft(draftOf(saved));
      return onSaved(saved);
    });
  };
  return html`<form class="sink-form" onSubmit=${save}>
      <div class="stack">
        <section class="panel form">
          <${Fields} draft=${draft} set=${set} error=${error} isNew=${!script} mayChange=${mayChange} data=${sampleData(sample)} />
          <${ErrorBox} error=${error} />
          ${mayChange && html`<div class="form-actions">
            <${Button} type="submit" kind="primary" busy=${isBusy} disabled=${!isChanged}>${script ? "Save" : "Store"}<//>
          </div>`}
        </section>
      </div>
      <div class="stack sticky">
        ${script && html`<${RunPanel} script=${script} path=${path} isChanged=${isChanged} sample=${sample} setSample=${setSample} />
          <${References} path=${path} />`}
        ${!script && html`<section class="panel form"><h2>Sample</h2>
          <p class="muted">The editor completes its fields. Once the script is stored, it can be run on it here.</p>
          ${draft.kind === "script" && html`<${SamplePicker} sample=${sample} onChange=${setSample} />`}
        </section>`}
      </div>
    </form>`;
}

function Fields({ draft, set, error, isNew, mayChange, data }) {
  const chooseKind = (kind) => set({ kind, content: Object.values(STARTS).includes(draft.content) ? STARTS[kind] : draft.content });
  const mayGlobal = may("manage_global_scripts") || draft.owner === "global";
  const owners = [["me", "Me"], mayGlobal && ["global", "Global: everybody uses it"]].filter(Boolean);
  const isLua = draft.language === "lua";
  return html`<div class="form-row">
      <${Text} label="Name" value=${draft.name} onInput=${(name) => set({ name })} required readonly=${!mayChange}
        error=${errorOf(error, "name")}
        hint=${draft.kind === "library" ? "Programs load it by this name, such as acme.text." : undefined} />
      <${Select} label="Owner" value=${draft.owner} onInput=${(owner) => set({ owner })} disabled=${!mayChange} options=${owners} />
    </div>
    <${Text} label="Description" value=${draft.description} onInput=${(description) => set({ description })} readonly=${!mayChange} />
    ${isNew && html`<${Choice} legend="Kind" name="kind" value=${draft.kind} onInput=${chooseKind} options=${KINDS} />`}
    ${isNew && draft.kind === "library" && html`<${Choice} legend="Language" name="language" value=${draft.language}
      onInput=${(language) => set({ language })} options=${LANGUAGES} />`}
    <div class="field"><span>Source</span>
      <${Editor} key=${draft.language} label="Source of the script" lines=${18} readOnly=${!mayChange} language=${isLua ? "lua" : "text"}
        value=${draft.content} onInput=${(content) => set({ content })} scope=${luaScope(draft.kind, data)}
          modules=${luaModules(draft.kind)}
        check=${isLua && mayChange ? checkLua : undefined} errors=${errorsAt(error, "content")} />
    </div>
    ${draft.kind === "tool" && html`<div class="field"><span>JSON Schema of the arguments</span>
      <${Editor} label="JSON Schema of the arguments" language="json" lines=${6} readOnly=${!mayChange} value=${draft.schema}
        onInput=${(schema) => set({ schema })} />
    </div>`}
    <${Check} label="Active" hint="An inactive script is kept and not run." value=${draft.active} onInput=${(active) => set({ active })}
      disabled=${!mayChange} />`;
}

function parseSchema(text) {
  try {
    JSON.parse(text);
    return new JsonText(text);
  } catch (error) {
    throw new Error(`The schema is not JSON: ${error.message}`);
  }
}

/** The address of a record that names a script, if the user may look at it. */
function recordHref({ kind, id }) {
  if (kind === "sink" && managesSinks.value) return to("sinks", id);
  return kind === "space" && usesSpaces.value ? to("spaces", id) : null;
}

function References({ path }) {
  const { data, error, reload } = useGet(`${path}/references`);
  const isUnused = data && data.records.length === 0 && data.hidden === 0;
  const name = (record) => (recordHref(record) ? html`<a href=${recordHref(record)}>${record.name}</a>` : record.name);
  return html`<section class="panel"><h2>Who uses it</h2>
    <${ErrorBox} error=${error} retry=${reload} />
    ${!data && !error && html`<${Loading} />`}
    ${isUnused && html`<p class="muted">No sink, space or template names it.</p>`}
    <ul class="plain-list">
      ${(data?.records ?? []).map((record) => html`<li key=${record.id}><span class="tag">${record.kind}</span>${name(record)}</li>`)}
    </ul>
    ${data?.hidden > 0 && html`<p class="muted">and ${data.hidden} of others</p>`}
  </section>`;
}

/** True if the user may run the script: tools are for MCP clients too. */
function mayRun(script) {
  if (script.kind === "library" || script.language !== "lua") return false;
  return script.kind === "tool" ? may("manage_own_scripts", "manage_global_scripts", "use_mcp_server") : managesScripts.value;
}

function RunPanel({ script, path, isChanged, sample, setSample }) {
  const schema = script.params_schema;
  const withForm = script.kind === "tool" && hasForm(schema);
  const [fields, setFields] = useState(() => (withForm ? newFields(schema) : {}));
  const [text, setText] = useState("{}");
  const [result, setResult] = useState(null);
  const { isBusy, error, run } = useAction();
  if (!mayRun(script)) return null;
  const start = () => run(async () => {
    setResult(null);
    const body = script.kind === "script" ? sampleBody(sample) : { params: withForm ? paramsOf(schema, fields) : parsePayload(text) };
    setResult(await post(`${path}/run`, body, { limit: LONG, texts: ["result"] }));
  });
  return html`<section class="panel form"><h2>Run</h2>
    ${isChanged && html`<p class="muted">The stored version runs: save first to run your changes.</p>`}
    ${script.kind === "script" && html`<${SamplePicker} sample=${sample} onChange=${setSample} />`}
    ${withForm && html`<${SchemaFields} schema=${schema} fields=${fields} onChange=${setFields} />`}
    ${script.kind === "tool" && !withForm && html`<div class="field"><span>Arguments</span>
      <${Editor} label="Arguments as JSON" language="json" lines=${6} value=${text} onInput=${setText} />
    </div>`}
    <div class="form-actions"><${Button} icon="play" kind="primary" busy=${isBusy} onClick=${start}>Run<//></div>
    <div aria-live="polite"><${ErrorBox} error=${error} />${result && html`<${RunResult} result=${result} />`}</div>
  </section>`;
}

function RunResult({ result }) {
  return html`<div class="stack">
    <div class="side-by-side">
      <${State} value=${result.outcome} /><span class="muted">${result.cpu_ms.toFixed(2)} ms of processor time</span>
    </div>
    ${result.error && html`<${Block} text=${result.error.message} label="Error" />`}
    ${result.result !== undefined && html`<${Block} text=${pretty(result.texts.result)} label="Result" />`}
    ${result.log.length > 0 && html`<div><h3>Log</h3><${Block} text=${result.log.join("\n")} label="Log" /></div>`}
  </div>`;
}
