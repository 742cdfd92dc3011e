// Making and changing a source: how requests are verified, and the Lua that turns them into events.

import { html, useState } from "../core/html.js";
import { LONG, patch, post } from "../core/api.js";
import { may } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction } from "../core/resource.js";
import { pretty } from "../core/format.js";
import { checkLua, errorsAt } from "../core/lua_check.js";
import { luaScope } from "../core/lua_scope.js";
import { fileValue, isReference, parseValue } from "../core/sink_draft.js";
import { toToml } from "../core/toml.js";
import { announce, Block, Button, ErrorBox, Heading } from "../parts/basics.js";
import { Check, errorOf, LongText, Select, Text } from "../parts/forms.js";
import { Editor } from "../parts/editor.js";
import { useLeaveQuestion } from "../parts/leaving.js";

const KINDS = ["standard-webhooks", "github", "gitlab", "stripe", "slack", "token", "basic", "hmac", "none"];

/** The fields of each verifier beside the secret: name, label, hint. */
const FIELDS = {
  "standard-webhooks": ["tolerance", "overlap"], github: ["overlap"], gitlab: ["tolerance", "overlap"], stripe: ["tolerance", "overlap"],
  slack: ["tolerance", "overlap"], token: ["header", "query", "prefix", "id_header", "overlap"],
  basic: ["username", "id_header", "overlap"],
  hmac: ["header", "prefix", "algorithm", "encoding", "signed", "timestamp", "tolerance", "id_header", "overlap"], none: ["id_header"],
};
const LABELS = {
  tolerance: ["Replay window", "5m"],
  header: ["Header", "X-Signature"],
  query: ["Query parameter, in place of a header", "token"],
  prefix: ["Prefix", "sha256="],
  id_header: ["Header with the delivery's id", "X-Delivery"],
  username: ["User name", ""],
  algorithm: ["Algorithm", "sha256"],
  encoding: ["Encoding", "hex"],
  signed: ["Signed parts, one a line", "header:X-Time\ntext:.\nbody"],
  timestamp: ["Header with the signed time", "X-Time"],
  overlap: ["Overlap after a change", "24h"],
};

/** Fields in which a space counts: `Bearer ` is another prefix than `Bearer`. */
const VERBATIM = ["prefix", "username"];

/** A field of a verifier as the form has it: several parts as lines. */
const fieldText = (value) => (Array.isArray(value) ? value.join("\n") : (value ?? ""));

function draftOf(source) {
  const verify = { type: "github", ...source?.verify };
  return {
    slug: source?.slug ?? "",
    description: source?.description ?? "",
    owner: source?.owner ?? "me",
    rate: String(source?.rate ?? 100),
    active: source?.active !== false,
    type: verify.type,
    secret: "",
    fields: Object.fromEntries(Object.keys(LABELS).map((name) => [name, fieldText(verify[name])])),
    insecure: Boolean(verify.insecure),
    transform: source?.transform ?? "",
  };
}

/** The name and value of a line such as `X-Note: text`. */
const headerOf = (line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()];

/** The value that the text of a field stands for; undefined for an empty one. */
function fieldValue(name, text) {
  if (name === "signed") {
    const parts = text.split("\n").filter((line) => line.trim() !== "");
    return parts.length > 0 ? parts : undefined;
  }
  return (VERBATIM.includes(name) ? text : text.trim()) || undefined;
}

/** The verification of a draft: that of the stored source of the same type, with the fields that were changed. An absent secret stays. */
function verifyOf(draft, source) {
  const { secret: _, ...stored } = source?.verify.type === draft.type ? source.verify : { type: draft.type };
  const verify = { ...stored };
  for (const name of FIELDS[draft.type]) {
    if (draft.fields[name] === fieldText(stored[name])) continue;
    verify[name] = fieldValue(name, draft.fields[name]);
  }
  if (draft.type === "none") verify.insecure = draft.insecure;
  else if (draft.secret !== "") verify.secret = parseValue(draft.secret);
  return verify;
}

function specOf(draft, source) {
  const { description, owner, active } = draft;
  const spec = { slug: draft.slug.trim(), description, owner, rate: Number(draft.rate), active, verify: verifyOf(draft, source) };
  if (draft.transform.trim() !== "") spec.transform = draft.transform;
  return spec;
}

/** The fields in which a draft differs from the stored source. */
function changesOf(draft, source) {
  const [before, after] = [specOf(draftOf(source), source), specOf(draft, source)];
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = fields.filter((field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]));
  return Object.fromEntries(changed.map((field) => [field, after[field] ?? null]));
}

/** The source as a file has it. A text of a secret stays on the server; a reference to one is told. */
function tomlOf(draft, source) {
  const spec = specOf(draft, source);
  const { secret = isReference(source?.verify.secret) ? source.verify.secret : undefined, ...verify } = spec.verify;
  return { ...spec, verify: { ...verify, secret: fileValue(secret) } };
}

export function SourceForm({ source, onSaved }) {
  const [draft, setDraft] = useState(() => draftOf(source));
  const { isBusy, error, run } = useAction();
  const [body, setBody] = useState("{}");
  const set = (changes) => setDraft((before) => ({ ...before, ...changes }));
  const isChanged = source ? Object.keys(changesOf(draft, source)).length > 0 : JSON.stringify(draft) !== JSON.stringify(draftOf());
  useLeaveQuestion(isChanged);
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const saved = source ? await patch(`/api/sources/${source.id}`, changesOf(draft, source))
        : await post("/api/sources", specOf(draft));
      announce(source ? "Saved." : `The source ${saved.slug} is made.`);
      if (!source) return navigate(to("sources", saved.id), { isSaved: true });
      setDraft(draftOf(saved));
      return onSaved(saved);
    });
  };
  return html`${!source && html`<${Heading} title="New source" back=${{ href: to("sources"), name: "Sources" }} />`}
    <form class="sink-form" onSubmit=${save}>
      <div class="stack">
        <section class="panel form"><${General} draft=${draft} set=${set} error=${error} /></section>
        <section class="panel form"><h2>Verification</h2>
          <${Verification} draft=${draft} set=${set} error=${error} source=${source} />
        </section>
        <section class="panel form"><h2>Transform</h2>
          <${Transform} draft=${draft} set=${set} error=${error} data=${jsonOf(body)} />
        </section>
        <${ErrorBox} error=${error} />
        <div class="form-actions">
          <${Button} type="submit" kind="primary" busy=${isBusy} disabled=${!isChanged}>${source ? "Save" : "Make the source"}<//>
        </div>
      </div>
      <div class="stack sticky">
        <${TryTransform} source=${source} body=${body} setBody=${setBody} isChanged=${isChanged} />
        <details class="panel"><summary><strong>As TOML</strong></summary>
          <p class="hint spaced">For a file that <code>svc source apply</code> reads.</p>
          <${Block} text=${toToml(tomlOf(draft, source))} label="TOML" />
        </details>
      </div>
    </form>`;
}

function General({ draft, set, error }) {
  const owners = [["me", "Me"], may("manage_global_event_sinks") && ["global", "Global"]].filter(Boolean);
  return html`<div class="form-row">
      <${Text} label="Slug" hint=${`Its address is ${location.origin}/in/${draft.slug || "…"}`} value=${draft.slug}
        onInput=${(slug) => set({ slug })} required error=${errorOf(error, "slug")} />
      <${Select} label="Owner" value=${draft.owner} onInput=${(owner) => set({ owner })} options=${owners} />
      <${Text} label="Requests a second" type="number" min="1" max="10000" value=${draft.rate} onInput=${(rate) => set({ rate })}
        error=${errorOf(error, "rate")} />
    </div>
    <${Text} label="Description" value=${draft.description} onInput=${(description) => set({ description })} />
    <${Check} label="Active" hint="An inactive source looks absent to senders." value=${draft.active}
      onInput=${(active) => set({ active })} />`;
}

function Verification({ draft, set, error, source }) {
  const setField = (name) => (text) => set({ fields: { ...draft.fields, [name]: text } });
  const field = (name) => html`<${name === "signed" ? LongText : Text} key=${name} label=${LABELS[name][0]} placeholder=${LABELS[name][1]}
    value=${draft.fields[name]} onInput=${setField(name)} error=${errorOf(error, `verify.${name}`)} />`;
  return html`<${Select} label="Scheme" value=${draft.type} onInput=${(type) => set({ type })} options=${KINDS} />
    ${draft.type === "none"
      ? html`<${Check} label="Anybody who knows the address may raise events" hint="Without this the source is refused."
      value=${draft.insecure} onInput=${(insecure) => set({ insecure })} />`
        : html`<${Secret} draft=${draft} set=${set} error=${error} source=${source} />`}
    <div class="form-row">${FIELDS[draft.type].map(field)}</div>`;
}

function Secret({ draft, set, error, source }) {
  const isNew = !source;
  const place = isReference(source?.verify.secret) ? `It is read on the server: ${JSON.stringify(source.verify.secret)}. ` : "";
  const hint = isNew ? "What the provider signs with or sends. It is never shown again."
    : `${place}The present one stays valid beside a new one for the overlap.`;
  return html`<${Text} label="Secret" type="password" autocomplete="new-password" value=${draft.secret}
    onInput=${(secret) => set({ secret })}
    required=${isNew} placeholder=${isNew ? "" : "unchanged"} hint=${hint} error=${errorOf(error, "verify.secret")} />`;
}

function Transform({ draft, set, error, data }) {
  return html`<div class="field">
    <${Editor} label="Transform, in Lua" lines=${10} value=${draft.transform} onInput=${(transform) => set({ transform })}
      scope=${luaScope("transform", data)} check=${checkLua} errors=${errorsAt(error, "transform")} />
    <div class="hint">
      Returns an event ${"{type, payload, id}"}, a list of them, or a response.${" "}
      Without it the JSON body becomes the payload of custom.source.${draft.slug || "SLUG"}.
    </div>
  </div>`;
}

/** The value of a JSON text, for completion; undefined if it is none. */
function jsonOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The saved transform on a request that is written here, whose fields the editor completes. Nothing is emitted. */
function TryTransform({ source, body, setBody, isChanged }) {
  const [headers, setHeaders] = useState("content-type: application/json");
  const [result, setResult] = useState(null);
  const { isBusy, error, run } = useAction();
  const test = () => run(async () => {
    setResult(null);
    const pairs = headers.split("\n").filter((line) => line.includes(":")).map(headerOf);
    const options = { limit: LONG, texts: ["response", "events"] };
    setResult(await post(`/api/sources/${source.id}/test`, { headers: Object.fromEntries(pairs), body }, options));
  });
  return html`<section class="panel form"><h2>Try it</h2>
    <p class="muted">${source ? "The saved transform on this request. Nothing is emitted."
      : "The editor completes the fields of this body."}</p>
    ${source && isChanged && html`<p class="muted">Save first to try your changes.</p>`}
    <${LongText} label="Headers" rows=${2} value=${headers} onInput=${setHeaders} />
    <div class="field"><span>Body</span>
      <${Editor} label="Body of the request" language="json" lines=${6} value=${body} onInput=${setBody} /></div>
    ${source ? html`<div class="form-actions"><${Button} icon="play" busy=${isBusy} onClick=${test}>Try<//></div>`
      : html`<p class="muted">Once the source is made, its transform can be tried on it.</p>`}
    <div aria-live="polite"><${ErrorBox} error=${error} />
      ${result?.error && html`<${ErrorBox} error=${{ message: result.error }} />`}
      ${result && !result.error && html`<${Block} text=${pretty(result.texts.response ?? result.texts.events)} label="Result" />`}
      ${result?.log.length > 0 && html`<h3>Log</h3><${Block} text=${result.log.join("\n")} label="Log" />`}
    </div>
  </section>`;
}
