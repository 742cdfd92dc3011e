// Names that Lua of the console has in scope, by the place where it runs, for the completion of the editor. docs/lua.md describes them;
// a test compares them with those of the running server.

const fn = (detail, info) => ({ detail, info, kind: "function" });
const value = (detail, info) => ({ detail, info, kind: "property" });
const table = (info, members) => ({ info, kind: "variable", members });

/** Functions of a library whose names say enough. */
const named = (names, detail) => Object.fromEntries(names.split(" ").map((name) => [name, fn(detail)]));
const constants = (names) => Object.fromEntries(names.split(" ").map((name) => [name, value("number")]));

const JSON_LIBRARY = table("JSON", {
  encode: fn("(value)", "The value as JSON text"),
  decode: fn("(text)", "The value of JSON text"),
  array: fn("(table)", "Marks a table as a list"),
  null: value("null", "JSON's null"),
});
const TIME = table("Times, in seconds since 1970", {
  now: fn("()", "The present moment"),
  format: fn("(seconds, [strftime])", "A time in UTC"),
  parse: fn("(text)", "The seconds of an RFC 3339 time"),
});
const RE = table("Regular expressions, in the syntax of Rust's regex", {
  ...named("test match find_all split", "(pattern, text)"),
  replace: fn("(pattern, text, with)"),
  escape: fn("(text)"),
});
const CRYPTO = table("Hashes and encodings", {
  sha256: fn("(text)"),
  hmac_sha256: fn("(key, text)"),
  ...named("hex_encode hex_decode base64_encode base64_decode", "(text)"),
  random: fn("(bytes)"),
  uuid: fn("()"),
  equal: fn("(a, b)", "Compares in constant time"),
});
const LOG = table("Lines that are kept with the attempt", named("debug info warn error", "(…)"));
const HTTP = table("Requests, under the egress policy", {
  ...named("get delete", "(url, [options])"),
  ...named("post put patch", "(url, [body], [options])"),
  request: fn("{method, url, headers, body, json, timeout}"),
});
const KV = table("A small durable store of the owner", {
  get: fn("(key)"),
  set: fn("(key, value, [ttl])"),
  add: fn("(key, value, [ttl])", "Sets a key only if it does not exist"),
  increment: fn("(key, [by], [ttl])"),
  delete: fn("(key)"),
});
const SCRIPT_SVC = table("The service", {
  call: fn("(method, params)", "Calls a method as the sink's owner"),
  retry: fn("(seconds, why)", "Tries again later"),
  skip: fn("(why)", "Declines the event"),
  dead: fn("(why)", "Gives the event up"),
});
const TOOL_SVC = table("The service", {
  call: fn("(method, params)", "Calls a method as the user who runs the tool"),
  event: table("Events", { emit: fn("(type, payload)", "Emits an event as the user who runs the tool") }),
});

/** The module `svc.event`, which templates and scripts of an event can require. */
const EVENT_MODULE = {
  id: fn("()", "The event's id"),
  type: fn("()", "The event's type"),
  ts: fn("()", "The event's time"),
  space: fn("()", "The space that the event comes from"),
  space_urls: fn("()", "The addresses of the space"),
  actor: fn("()", "The user or program that raised it"),
  custom: fn("()", "The custom fields of the space"),
  missed: fn("()", "The numbers of a gap before the event, or nil"),
  replay: fn("()", "The id of the replay that sends it, or nil"),
  ...named("get_string get_int get_bool get_list get_dict", "(name or path, [default])"),
};

const LANGUAGE = {
  ...named("print select", "(…)"),
  ...named("tostring tonumber type typeof getmetatable next", "(value)"),
  ...named("pairs ipairs unpack rawlen", "(table)"),
  ...named("rawget rawequal", "(table, key)"),
  rawset: fn("(table, key, value)"),
  setmetatable: fn("(table, metatable)"),
  assert: fn("(value, [message])"),
  error: fn("(message, [level])"),
  pcall: fn("(function, …)"),
  xpcall: fn("(function, handler, …)"),
  require: fn("\"library\""),
  _G: value("table", "All globals, read-only"),
};
const STRING = table("Strings", {
  format: fn("(format, …)"),
  sub: fn("(text, from, [to])"),
  rep: fn("(text, count)"),
  split: fn("(text, separator)"),
  gsub: fn("(text, pattern, with)"),
  ...named("upper lower len reverse", "(text)"),
  ...named("find match gmatch", "(text, pattern)"),
  ...named("byte char pack packsize unpack", "(…)"),
});
const TABLE = table("Tables", {
  concat: fn("(list, [separator])"),
  insert: fn("(list, [position], value)"),
  remove: fn("(list, [position])"),
  sort: fn("(list, [order])"),
  find: fn("(list, value)"),
  create: fn("(count, [value])"),
  move: fn("(from, first, last, at, [to])"),
  pack: fn("(…)"),
  ...named("unpack clear clone freeze isfrozen", "(table)"),
});
const MATH = table("Numbers", {
  ...named("abs acos asin atan ceil cos cosh deg exp floor frexp isfinite isinf isnan log10 modf rad round sign sin sinh sqrt tan tanh",
    "(x)"),
  ...named("max min noise", "(…)"),
  ...named("atan2 fmod ldexp pow", "(x, y)"),
  log: fn("(x, [base])"),
  clamp: fn("(x, low, high)"),
  lerp: fn("(from, to, share)"),
  map: fn("(x, from_low, from_high, to_low, to_high)"),
  random: fn("([m], [n])"),
  randomseed: fn("(seed)"),
  ...constants("e huge nan phi pi sqrt2 tau"),
});
const UTF8 = table("UTF-8", { ...named("char codepoint codes len offset", "(…)"), charpattern: value("string") });
const BIT32 = table("Bits of 32-bit numbers", named(
  "arshift band bnot bor btest bxor byteswap countlz countrz extract lrotate lshift replace rrotate rshift", "(…)",
));
const BUFFER = table("Bytes", named(
  "copy create fill fromstring len readbits readf32 readf64 readi16 readi32 readi8 readstring readu16 readu32 readu8 tostring writebits "
  + "writef32 writef64 writei16 writei32 writei8 writestring writeu16 writeu32 writeu8", "(…)",
));
const INTEGER = table("Exact 64-bit integers", {
  ...named(
    "add arshift band bnot bor bswap btest bxor clamp countlz countrz create div extract fromstring ge gt idiv le lrotate lshift lt "
    + "max min mod mul neg rem replace rrotate rshift sub tonumber udiv uge ugt ule ult urem", "(…)",
  ),
  ...constants("maxsigned minsigned"),
});

/** The globals of every place. */
const COMMON = {
  json: JSON_LIBRARY, time: TIME, re: RE, crypto: CRYPTO, log: LOG, ...LANGUAGE,
  string: STRING, table: TABLE, math: MATH, utf8: UTF8, bit32: BIT32, buffer: BUFFER, integer: INTEGER,
};
const EFFECTS = { http: HTTP, kv: KV };

/** The members that a sample payload shows, so that `event.data.` completes its fields. */
function membersOf(data, depth = 0) {
  if (typeof data !== "object" || data === null || Array.isArray(data) || depth > 4) return {};
  const entries = Object.entries(data).filter(([name]) => /^[A-Za-z_]\w*$/.test(name)).slice(0, 200);
  const member = (inner) => ({ kind: "property", detail: describe(inner), members: membersOf(inner, depth + 1) });
  return Object.fromEntries(entries.map(([name, inner]) => [name, member(inner)]));
}

function describe(inner) {
  if (inner === null) return "null";
  if (Array.isArray(inner)) return "list";
  return typeof inner === "object" ? "table" : JSON.stringify(inner).slice(0, 40);
}

const payload = (data) => ({ kind: "property", detail: "table", info: "The payload", members: membersOf(data) });

/** `event` of a filter, which runs before the event has a number. */
const routedEvent = (data) => table("The event", {
  id: value("string"), type: value("string"), ts: value("string"), data: payload(data),
});
const deliveredEvent = (data) => table("The event", {
  id: value("string"), type: value("string"), ts: value("string"),
  sequence: value("number", "The sink's number of the event"), attempt: value("number", "The number of this attempt, from 1"),
  missed: value("list or nil", "The numbers of a gap before the event: from, to, reason"),
  replay: value("string or nil", "The id of the replay that sends it"), data: payload(data),
});
const SPACE = table("The space that the event comes from", { id: value("string"), name: value("string"), urls: value("list") });
const ACTOR = table("The user or program that raised the event", { id: value("string"), username: value("string"), kind: value("string") });
const CUSTOM = table("The custom fields of the space", {});

const request = (data) => table("The verified request", {
  headers: value("table", "In lower case"), query: value("table"), body: value("string"), form: value("table or nil"),
  json: { kind: "property", detail: "table or nil", info: "The body, if it is JSON", members: membersOf(data) },
});
const SOURCE = table("The source", { slug: value("string") });

/** The names in scope of a place: `template`, `script`, `filter`, `transform`, `tool` or `library`. */
export function luaScope(place, data) {
  const origin = { space: SPACE, actor: ACTOR };
  switch (place) {
    case "filter":
      return { event: routedEvent(data), ...origin, ...COMMON };
    case "template":
      return { event: deliveredEvent(data), ...origin, custom: CUSTOM, ...COMMON };
    case "batch":
      return { events: table("The events of the batch, each with space, actor and custom", {}), ...COMMON };
    case "script":
      return { event: deliveredEvent(data), ...origin, custom: CUSTOM, ...EFFECTS, svc: SCRIPT_SVC, ...COMMON };
    case "transform":
      return { request: request(data), source: SOURCE, ...COMMON };
    case "tool":
      return { params: { kind: "variable", info: "The arguments", members: membersOf(data) }, ...EFFECTS, svc: TOOL_SVC, ...COMMON };
    default:
      return { ...EFFECTS, ...COMMON };
  }
}

/** The modules that a place can require beside stored libraries, by name. */
export function luaModules(place) {
  if (place === "tool") return { "svc.event": TOOL_SVC.members.event.members };
  return ["template", "script"].includes(place) ? { "svc.event": EVENT_MODULE } : {};
}

