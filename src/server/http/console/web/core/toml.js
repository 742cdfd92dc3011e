// A definition as the TOML that `svc sink apply` and `svc source apply` read.

/** A table that stays on one line, such as `{ env = "NAME" }`. */
export class Inline {
  constructor(fields) {
    this.fields = fields;
  }
}

/** The TOML of an object: plain values first, then its tables. Empty and absent values are left out. */
export function toToml(object, path = []) {
  const entries = Object.entries(object).filter(([, value]) => !isEmpty(value));
  const isTable = (value) => typeof value === "object" && !Array.isArray(value) && !(value instanceof Inline);
  const lines = entries.filter(([, value]) => !isTable(value)).map(([name, value]) => `${key(name)} = ${literal(value)}`);
  const tables = entries.filter(([, value]) => isTable(value)).map(([name, value]) => {
    const inner = [...path, key(name)];
    return `\n[${inner.join(".")}]\n${toToml(value, inner)}`;
  });
  return [...lines, ...tables].join("\n");
}

function isEmpty(value) {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && !Array.isArray(value) && Object.keys(value).length === 0;
}

function key(name) {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : quoted(name);
}

function literal(value) {
  if (typeof value === "string") return value.includes("\n") ? multiline(value) : quoted(value);
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (value instanceof Inline) {
    return `{ ${Object.entries(value.fields).map(([name, inner]) => `${key(name)} = ${literal(inner)}`).join(", ")} }`;
  }
  return String(value);
}

/** Text on one line. Of the characters that TOML wants escaped, JSON leaves one. */
function quoted(text) {
  return JSON.stringify(text).replaceAll("\u007f", "\\u007F");
}

/** Characters that stand in no text of several lines as they are. */
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/;

/** Text of several lines: without escapes if it can be. */
function multiline(text) {
  if (CONTROL.test(text)) return quoted(text);
  const end = text.endsWith("\n") ? "" : "\\\n";
  if (!text.includes("'''") && end === "") return `'''\n${text}'''`;
  return `"""\n${text.replaceAll("\\", "\\\\").replaceAll('"""', '\\"\\"\\"')}${end}"""`;
}
