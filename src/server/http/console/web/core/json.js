// JSON as text. Numbers of a payload may have more digits than the browser's numbers can hold, so that a text that is shown or sent on is
// never made of parsed values.

/** A JSON text that is sent as it is, alone or as a member of the body of a request. */
export class JsonText {
  constructor(text) {
    this.text = text;
  }
}

/** The JSON of the body of a request. */
export function bodyText(body) {
  if (body instanceof JsonText) return body.text;
  const isPlain = body === null || typeof body !== "object" || Array.isArray(body);
  if (isPlain || !Object.values(body).some((value) => value instanceof JsonText)) return JSON.stringify(body);
  const given = Object.entries(body).filter(([, value]) => value !== undefined);
  const text = (value) => (value instanceof JsonText ? value.text : JSON.stringify(value));
  return `{${given.map(([name, value]) => `${JSON.stringify(name)}:${text(value)}`).join(",")}}`;
}

/** Strings, brackets, commas and colons, and words: numbers, `true`, `false` and `null`. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;

/** The text with indentation, each of its strings and numbers as it is. A text that is no JSON stays as it is. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const parts = [];
  let depth = 0;
  let before = "";
  const line = () => parts.push("\n", "  ".repeat(depth));
  for (const [token] of text.matchAll(TOKEN)) {
    const isEnd = token === "}" || token === "]";
    const isOpened = before === "{" || before === "[";
    if (isEnd) depth -= 1;
    if (before === "," || (isOpened !== isEnd && (isOpened || isEnd))) line();
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return parts.join("");
}

/**
 * The value of a JSON text whose numbers are written again as they were: with all their digits, also those that the browser's numbers
 * cannot hold. An older browser rounds those.
 */
export function parseExact(text) {
  if (typeof JSON.rawJSON !== "function") return JSON.parse(text);
  return JSON.parse(text, (key, value, context) => {
    const isExact = typeof value !== "number" || context?.source === undefined || JSON.stringify(value) === context.source;
    return isExact ? value : JSON.rawJSON(context.source);
  });
}

/** The texts of these members of a JSON object, by their names; those that it lacks are absent. */
export function memberTexts(text, names) {
  const texts = {};
  let depth = 0;
  let name = null;
  let from = -1;
  let before = "";
  for (const match of text.matchAll(TOKEN)) {
    const [token] = match;
    if (depth === 1 && (token === "," || token === "}") && from >= 0) {
      if (names.includes(name)) texts[name] = text.slice(from, match.index).trim();
      from = -1;
    }
    if (depth === 1 && from < 0 && token === ":") from = match.index + 1;
    else if (depth === 1 && from < 0 && token.startsWith('"') && (before === "{" || before === ",")) name = JSON.parse(token);
    if (token === "{" || token === "[") depth += 1;
    else if (token === "}" || token === "]") depth -= 1;
    before = token;
  }
  return texts;
}
