// A definition as the TOML that `svc sink apply` and `svc source apply` read.

/** The TOML of an object: plain values first, then its tables. Empty and absent values are left out. */
export function toToml(object, path = []) {
  const entries = Object.entries(object).filter(([, value]) => !isEmpty(value));
  const isTable = (value) => typeof value === "object" && !Array.isArray(value) && !isReference(value);
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

/** `{ env = "NAME" }` and the like stay on one line. */
function isReference(value) {
  const keys = Object.keys(value);
  return keys.length === 1 && ["env", "file", "credential"].includes(keys[0]);
}

function key(name) {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name);
}

function literal(value) {
  if (typeof value === "string") return value.includes("\n") ? multiline(value) : JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{ ${Object.entries(value).map(([name,
    inner]) => `${key(name)} = ${literal(inner)}`).join(", ")} }`;
  return String(value);
}

/** Text of several lines: without escapes if it can be. */
function multiline(text) {
  const end = text.endsWith("\n") ? "" : "\\\n";
  if (!text.includes("'''") && end === "") return `'''\n${text}'''`;
  return `"""\n${text.replaceAll("\\", "\\\\").replaceAll('"""', '\\"\\"\\"')}${end}"""`;
}
