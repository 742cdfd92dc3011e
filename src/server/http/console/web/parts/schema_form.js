// A form made of a JSON Schema: one field for each property. What the form cannot show is written as JSON.

import { html } from "../core/html.js";
import { bodyText, JsonText } from "../core/json.js";
import { Check, LongText, Select, Text } from "./forms.js";

/** A number as JSON has it. */
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

const isPlain = (schema) => ["string", "integer", "number", "boolean"].includes(schema?.type) || Array.isArray(schema?.enum);

/** True if a schema is an object with properties, which the form can show. */
export function hasForm(schema) {
  return schema?.type === "object" && typeof schema.properties === "object" && schema.properties !== null;
}

/** The texts of the fields: defaults where the schema has them. */
export function newFields(schema) {
  const fields = {};
  for (const [name, property] of Object.entries(schema.properties)) {
    const value = property?.default;
    if (property?.type === "boolean") fields[name] = value === undefined ? "" : String(value);
    else fields[name] = value === undefined ? "" : isPlain(property) ? String(value) : JSON.stringify(value, null, 2);
  }
  return fields;
}

/** The params of the fields, as JSON with the numbers as they were written. An empty field is left out; one that is no JSON where it must be is an error that names it. */
export function paramsOf(schema, fields) {
  const params = {};
  for (const [name, property] of Object.entries(schema.properties)) {
    const text = fields[name] ?? "";
    if (text === "") continue;
    params[name] = parse(name, property ?? {}, text);
  }
  return new JsonText(bodyText(params));
}

function parse(name, schema, text) {
  if (Array.isArray(schema.enum)) return schema.enum.find((value) => String(value) === text);
  if (schema.type === "string") return text;
  if (schema.type === "boolean") return text === "true";
  if (schema.type === "integer" || schema.type === "number") {
    const number = Number(text);
    if (Number.isNaN(number)) throw new Error(`${name} must be a number.`);
    return NUMBER.test(text) ? new JsonText(text) : number;
  }
  try {
    JSON.parse(text);
    return new JsonText(text);
  } catch (error) {
    throw new Error(`${name} is not JSON: ${error.message}`);
  }
}

export function SchemaFields({ schema, fields, onChange }) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const field = ([name,
    property]) => html`<${SchemaField} key=${name} name=${name} schema=${property ?? {}} isRequired=${required.has(name)}
    value=${fields[name] ?? ""} onInput=${(text) => onChange({ ...fields, [name]: text })} />`;
  return Object.entries(schema.properties).map(field);
}

function SchemaField({ name, schema, isRequired, value, onInput }) {
  const hint = [schema.description, limits(schema)].filter(Boolean).join(" ") || undefined;
  const field = { label: isRequired ? `${name} *` : name, hint, value, onInput };
  if (Array.isArray(schema.enum)) {
    const options = schema.enum.map((one) => [String(one), String(one)]);
    return html`<${Select} ...${field} options=${[["", isRequired ? "choose one" : "not given"], ...options]} required=${isRequired} />`;
  }
  switch (schema.type) {
    case "boolean":
      if (!isRequired) return html`<${Select} ...${field} options=${[["", "not given"], "true", "false"]} />`;
      return html`<${Check} ...${field} value=${value === "true"} onInput=${(isOn) => onInput(String(isOn))} />`;
    case "integer":
    case "number":
      return html`<${Text} ...${field} type="number" step=${schema.type === "integer" ? "1" : "any"} min=${schema.minimum}
        max=${schema.maximum} required=${isRequired} />`;
    case "string":
      return html`<${Text} ...${field} required=${isRequired && schema.minLength > 0} />`;
    default:
      return html`<${LongText} ...${field} label=${`${field.label} (JSON)`} required=${isRequired} />`;
  }
}

function limits(schema) {
  const parts = [
    schema.minimum !== undefined && `at least ${schema.minimum}`,
    schema.maximum !== undefined && `at most ${schema.maximum}`,
    schema.minLength !== undefined && `at least ${schema.minLength} characters`,
    schema.maxLength !== undefined && `at most ${schema.maxLength} characters`,
    schema.pattern && `like ${schema.pattern}`,
    schema.format && `a ${schema.format}`,
  ].filter(Boolean);
  return parts.length > 0 ? `(${parts.join(", ")})` : "";
}
