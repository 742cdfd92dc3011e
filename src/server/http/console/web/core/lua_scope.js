// Names that Lua of the console has in scope, by the place where it runs, for the completion of the editor. docs/lua.md describes them.

const fn = (detail, info) => ({ detail, info, kind: "function" });
const value = (detail, info) => ({ detail, info, kind: "property" });
const table = (info, members) => ({ info, kind: "variable", members });

const JSON_LIBRARY = table("JSON", {
  encode: fn("(value)", "The value as JSON text"), decode: fn("(text)", "The value of JSON text"),
  array: fn("(table)", "Marks a table as a list"), null: value("null", "JSON's null"),
});
const TIME = table("Times, in seconds since 1970", {
  now: fn("()", "The present moment"), format: fn("(seconds, [strftime])", "A time in UTC"), parse: fn("(text)", "The seconds of an RFC 3339 time"),
});
const RE = table("Regular expressions, in the syntax of Rust's regex", {
  test: fn("(pattern, text)"), match: fn("(pattern, text)"), find_all: fn("(pattern, text)"), split: fn("(pattern, text)"),
  replace: fn("(pattern, text, with)"), escape: fn("(text)"),
});
const CRYPTO = table("Hashes and encodings", {
  sha256: fn("(text)"), hmac_sha256: fn("(key, text)"), hex_encode: fn("(text)"), hex_decode: fn("(text)"), base64_encode: fn("(text)"),
  base64_decode: fn("(text)"), random: fn("(bytes)"), uuid: fn("()"), equal: fn("(a, b)", "Compares in constant time"),
});
const LOG = table("Lines that are kept with the attempt", { debug: fn("(…)"), info: fn("(…)"), warn: fn("(…)"), error: fn("(…)") });
const HTTP = table("Requests, under the egress policy", {
  get: fn("(url, [options])"), delete: fn("(url, [options])"), post: fn("(url, [body], [options])"), put: fn("(url, [body], [options])"),
  patch: fn("(url, [body], [options])"), request: fn("{method, url, headers, body, json, timeout}"),
});
const KV = table("A small durable store of the owner", {
  get: fn("(key)"), set: fn("(key, value, [ttl])"), add: fn("(key, value, [ttl])"), increment: fn("(key, [by], [ttl])"), delete: fn("(key)"),
});
const SVC = table("The service", {
  call: fn("(method, params)", "Calls a method as the sink's owner"), retry: fn("(seconds, why)", "Tries again later"),
  skip: fn("(why)", "Declines the event"), dead: fn("(why)", "Gives the event up"),
});
const TOOL_SVC = table("The service", {
  call: fn("(method, params)", "Calls a method as the user who runs the tool"),
  event: table("Events", { emit: fn("(type, payload)", "Emits an event as the user who runs the tool") }),
});

const PURE = { json: JSON_LIBRARY, time: TIME, re: RE, crypto: CRYPTO, log: LOG };
const LANGUAGE = { print: fn("(…)"), tostring: fn("(value)"), tonumber: fn("(value)"), type: fn("(value)"), pairs: fn("(table)"), ipairs: fn("(table)"), error: fn("(message)"), pcall: fn("(function, …)"), require: fn("\"library\"") };
const STRING = table("Strings", {
  format: fn("(format, …)"), upper: fn("(text)"), lower: fn("(text)"), sub: fn("(text, from, [to])"), len: fn("(text)"), rep: fn("(text, count)"),
  find: fn("(text, pattern)"), match: fn("(text, pattern)"), gmatch: fn("(text, pattern)"), gsub: fn("(text, pattern, with)"), split: fn("(text, separator)"),
});
const TABLE = table("Tables", { concat: fn("(list, [separator])"), insert: fn("(list, value)"), remove: fn("(list, [position])"), sort: fn("(list)") });
const MATH = table("Numbers", { floor: fn("(x)"), ceil: fn("(x)"), max: fn("(…)"), min: fn("(…)"), abs: fn("(x)"), random: fn("([m], [n])") });
const BASE = { ...LANGUAGE, string: STRING, table: TABLE, math: MATH };

/** The members that a sample payload shows, so that `event.data.` completes its fields. */
function membersOf(data, depth = 0) {
  if (typeof data !== "object" || data === null || Array.isArray(data) || depth > 4) return {};
  const entries = Object.entries(data).filter(([name]) => /^[A-Za-z_]\w*$/.test(name)).slice(0, 200);
  return Object.fromEntries(entries.map(([name, inner]) => [name, { kind: "property", detail: describe(inner), members: membersOf(inner, depth + 1) }]));
}

function describe(inner) {
  if (inner === null) return "null";
  if (Array.isArray(inner)) return "list";
  return typeof inner === "object" ? "table" : JSON.stringify(inner).slice(0, 40);
}

const eventTable = (data) => table("The event", {
  id: value("string"), type: value("string"), ts: value("string"), sequence: value("number", "The sink's number of the event"),
  data: { kind: "property", detail: "table", info: "The payload", members: membersOf(data) },
});
const SPACE = table("The space that the event comes from", { id: value("string"), name: value("string"), urls: value("list") });
const ACTOR = table("The user or program that raised the event", { id: value("string"), username: value("string"), kind: value("string") });

/** The names in scope of a place: `template`, `script`, `filter`, `transform`, `tool` or `library`. */
export function luaScope(place, data) {
  const origin = { event: eventTable(data), space: SPACE, actor: ACTOR };
  switch (place) {
    case "filter":
      return { ...origin, ...PURE, ...BASE };
    case "template":
      return { ...origin, custom: table("The custom fields of the space", {}), ...PURE, ...BASE };
    case "script":
      return { ...origin, custom: table("The custom fields of the space", {}), ...PURE, http: HTTP, kv: KV, svc: SVC, ...BASE };
    case "transform":
      return {
        request: table("The verified request", {
          headers: value("table", "In lower case"), query: value("table"), body: value("string"), json: { kind: "property", detail: "table", members: membersOf(data) }, form: value("table"),
        }),
        ...PURE, ...BASE,
      };
    case "tool":
      return { params: { kind: "variable", info: "The arguments", members: membersOf(data) }, ...PURE, http: HTTP, kv: KV, svc: TOOL_SVC, ...BASE };
    default:
      return { ...PURE, http: HTTP, kv: KV, ...BASE };
  }
}
