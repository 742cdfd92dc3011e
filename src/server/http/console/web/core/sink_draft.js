// A sink while it is edited: the form's fields, and the definition that they make. Fields that the form does not know are kept.

import { Inline } from "./toml.js";

/** Fields of a sink that the server adds to its definition. */
const VIEW_FIELDS = [
  "id", "space_id", "queue", "quarantine", "previous_secret_until", "filter_errors", "status", "activity", "failure", "created_at", "updated_at",
];

export function newDraft() {
  return {
    spec: { type: "webhook", owner: "me" }, name: "", description: "", events: "", filter: "", active: true, owner: "me", type: "webhook",
    url: "", headers: [], secret: "", ed25519: false, skipTls: false, bodyMode: "default",
    template: { lang: "lua", source: "return {\n  text = event.type,\n}\n" },
    internal: false, onFailure: "dead-letter", gone: "retry", batchMax: "", batchWait: "",
    scriptMode: "source", scriptSource: "log.info(event.type)\n", scriptId: "",
    formatter: { lang: "lua", source: "return event.data\n" },
  };
}

/** The draft of a stored sink. */
export function draftOf(sink) {
  const fresh = newDraft();
  const spec = Object.fromEntries(Object.entries(sink).filter(([field]) => !VIEW_FIELDS.includes(field)));
  const { webhook, script, template } = sink;
  return {
    ...fresh,
    spec,
    name: sink.name,
    description: sink.description ?? "",
    events: sink.events,
    filter: sink.filter ?? "",
    active: sink.active !== false,
    owner: sink.owner,
    type: sink.type,
    url: valueText(webhook?.url ?? ""),
    headers: Object.entries(webhook?.headers ?? {}).map(([name, value]) => [name, valueText(value)]),
    ed25519: Boolean(webhook?.ed25519),
    skipTls: Boolean(webhook?.skip_tls_verify),
    bodyMode: webhook?.template ? "template" : (webhook?.body ?? "default"),
    template: webhook?.template ?? fresh.template,
    internal: Boolean(sink.internal),
    onFailure: sink.on_failure ?? "dead-letter",
    gone: webhook?.gone ?? "retry",
    batchMax: webhook?.batch ? String(webhook.batch.max) : "",
    batchWait: webhook?.batch?.wait ?? "",
    scriptMode: script?.script_id ? "stored" : "source",
    scriptSource: script?.source ?? fresh.scriptSource,
    scriptId: script?.script_id ?? "",
    formatter: template ?? fresh.formatter,
  };
}

/** An address, or a value of a header, as text; a reference to a place on the server is JSON. */
export function valueText(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Keys of a reference, one of the first three of which names the place on the server. */
const PLACES = ["env", "file", "credential"];

/** True if a value names a place on the server instead of being a text. */
export function isReference(value) {
  const keys = value && typeof value === "object" ? Object.keys(value) : [];
  return keys.some((key) => PLACES.includes(key)) && keys.every((key) => key === "prefix" || PLACES.includes(key));
}

/** The value that a text stands for: JSON of a reference, or the text itself. */
export function parseValue(text) {
  if (!text.startsWith("{")) return text;
  try {
    const value = JSON.parse(text);
    return isReference(value) ? value : text;
  } catch {
    return text;
  }
}

/** The definition that a draft stands for. Without a secret, the server makes or keeps one. */
export function specOf(draft) {
  const { description, events, type, owner, active } = draft;
  const spec = { ...draft.spec, name: draft.name.trim(), description, events, type, owner, active };
  for (const part of ["webhook", "script", "template", "filter", "internal", "on_failure"]) delete spec[part];
  if (draft.internal && draft.type !== "json-rpc") spec.internal = true;
  if (draft.onFailure !== "dead-letter" && draft.type !== "json-rpc") spec.on_failure = draft.onFailure;
  if (draft.filter.trim() !== "") spec.filter = draft.filter.trim();
  if (draft.type === "webhook") spec.webhook = webhookOf(draft);
  if (draft.type === "script") spec.script = draft.scriptMode === "stored" ? { script_id: draft.scriptId } : { source: draft.scriptSource };
  if (draft.type === "json-rpc") spec.template = draft.formatter;
  return spec;
}

function webhookOf(draft) {
  const { template: _, body: __, secret: ___, batch: ____, gone: _____, ...kept } = draft.spec.webhook ?? {};
  const named = draft.headers.filter(([name]) => name.trim() !== "");
  const headers = Object.fromEntries(named.map(([name, value]) => [name.trim(), parseValue(value)]));
  const webhook = { ...kept, url: parseValue(draft.url.trim()), headers, skip_tls_verify: draft.skipTls };
  if (draft.ed25519) webhook.ed25519 = true;
  else delete webhook.ed25519;
  if (draft.gone !== "retry") webhook.gone = draft.gone;
  const wait = draft.batchWait.trim();
  if (draft.batchMax !== "") webhook.batch = { max: Number(draft.batchMax), ...(wait !== "" && { wait }) };
  if (draft.secret.trim() !== "") webhook.secret = parseValue(draft.secret.trim());
  if (draft.bodyMode === "template") webhook.template = draft.template;
  else if (draft.bodyMode !== "default") webhook.body = draft.bodyMode;
  return webhook;
}

/** Defaults of fields that cannot be null. */
const DEFAULTS = { on_failure: "dead-letter", internal: false };

/** The fields in which a definition differs from a stored sink. A field that is gone has its default, or is null. */
export function changesOf(sink, spec) {
  const before = specOf(draftOf(sink));
  const changes = {};
  for (const field of new Set([...Object.keys(before), ...Object.keys(spec)])) {
    if (JSON.stringify(before[field]) !== JSON.stringify(spec[field])) changes[field] = spec[field] ?? DEFAULTS[field] ?? null;
  }
  return changes;
}

/** A value as a file has it: a variable is read on the server only if the file says so, and otherwise where the file is applied. */
export function fileValue(value) {
  if (!isReference(value)) return value;
  return new Inline(value.env === undefined ? value : { ...value, at: "delivery" });
}

/**
 * The TOML of a definition: a template's language is told by its field, and a stored script by its name. A text of a secret stays on the
 * server; a reference of the stored `sink` to one is told.
 */
export function tomlOf(spec, { sink, scriptName } = {}) {
  const flat = (template) => (template && template.lang === "lua" ? template.source : template);
  const { name, description, events, type, owner, filter, active, ...rest } = spec;
  const shown = { name, description, events, type, owner, filter, active, ...rest };
  if (shown.active !== false) delete shown.active;
  if (shown.owner === "me") delete shown.owner;
  if (shown.webhook) {
    const { url, headers, secret = sink?.webhook?.secret } = shown.webhook;
    const isTold = shown.webhook.secret !== undefined || isReference(secret);
    shown.webhook = {
      ...shown.webhook, url: fileValue(url), secret: isTold ? fileValue(secret) : undefined,
      headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, fileValue(value)])),
      template: flat(shown.webhook.template),
    };
    if (!shown.webhook.skip_tls_verify) delete shown.webhook.skip_tls_verify;
  }
  if (shown.script?.script_id !== undefined) shown.script = { stored: scriptName };
  if (shown.template) shown.template = flat(shown.template);
  return shown;
}
