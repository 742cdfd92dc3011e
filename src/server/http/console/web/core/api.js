// Requests to the HTTP API by session cookie. A request without an answer marks the server unreachable until one succeeds;
// a 401 ends the session on this page.

import { signal } from "./html.js";
import { bodyText, memberTexts, parseExact } from "./json.js";

/** False while requests get no answer. */
export const isReachable = signal(true);

/** Counts up whenever the server was unreachable and is back; views load again then. */
export const recoveries = signal(0);

/** Time in milliseconds after which a request without an answer has failed. */
const LIMIT = 20_000;

/** The limit of a request that waits for a program of a user: a call of a method, a run of a script, a test of a sink. */
export const LONG = 180_000;

/** The limit of the question whether the server is back. */
const HEALTH_LIMIT = 5000;

/** Called when the server no longer knows the session, and when it refuses what the user may not do. */
let sessionEnded = () => {};
let forbidden = () => {};

/** An error answer of the server, or no answer at all (status 0). `retryAfter` is in milliseconds, if the server gave it. */
export class ApiError extends Error {
  constructor(status, code, message, retryAfter) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

export function onSessionEnd(callback) {
  sessionEnded = callback;
}

export function onForbidden(callback) {
  forbidden = callback;
}

export const get = (path, query, options) => send("GET", path + queryString(query), undefined, options);
export const post = (path, body, options) => send("POST", path, body, options);
export const patch = (path, body) => send("PATCH", path, body);
export const del = (path, query) => send("DELETE", path + queryString(query));

/** `?a=1&b=2` of the values that are not empty. */
export function queryString(query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length > 0 ? `?${new URLSearchParams(pairs)}` : "";
}

/**
 * The answer as a value. With `texts` among the options, names of its members, it has their texts as `texts`; with `exact`, its numbers are
 * written again as they were.
 */
async function send(method, path, body, options) {
  const text = await sendForText(method, path, body, options);
  const answer = parse(text, options?.exact ? parseExact : JSON.parse);
  return options?.texts && answer ? { ...answer, texts: memberTexts(text, options.texts) } : answer;
}

/**
 * The text of a successful answer. Options: `signal` aborts, `limit` is the time that the answer may take, `headers` are further ones,
 * and a `quiet` request leaves the session as it is on a 401.
 */
export async function sendForText(method, path, body, { signal: abort, limit = LIMIT, headers = {}, quiet = false } = {}) {
  const options = { method, headers: { ...headers }, signal: within(limit, abort), credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = bodyText(body);
  }
  let response;
  let text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    throw abort?.aborted ? error : failure(error, limit);
  }
  reached();
  if (!response.ok) throw refusal(response, text, quiet);
  return text;
}

/**
 * A stream of the server: the answer, as soon as it begins. Its end is for the reader to see; `abort` closes it.
 */
export async function openStream(path, query, abort) {
  let response;
  const begun = new AbortController();
  const timer = setTimeout(() => begun.abort(new DOMException("", "TimeoutError")), LIMIT);
  try {
    response = await fetch(path + queryString(query), { signal: AbortSignal.any([abort, begun.signal]), credentials: "same-origin" });
    if (!response.ok) throw refusal(response, await response.text(), false);
  } catch (error) {
    throw error instanceof ApiError || abort.aborted ? error : failure(error, LIMIT);
  } finally {
    clearTimeout(timer);
  }
  reached();
  return response;
}

function within(limit, abort) {
  const timeout = AbortSignal.timeout(limit);
  return abort ? AbortSignal.any([abort, timeout]) : timeout;
}

/** The error of a request that got no answer. One that was allowed to take long says nothing of the server. */
function failure(error, limit) {
  if (error.name !== "TimeoutError") {
    lost();
    return new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  if (limit > LIMIT) {
    return new ApiError(0, "timeout", `There was no answer within ${limit / 1000} seconds. What was begun may still be under way.`);
  }
  lost();
  return new ApiError(0, "unreachable", `The server has not answered within ${limit / 1000} seconds.`);
}

function refusal(response, text, quiet) {
  reached();
  const { code = "error", message = `The server answered ${response.status}.` } = parse(text)?.error ?? {};
  if (response.status === 401 && !quiet) sessionEnded();
  if (response.status === 403) forbidden();
  const seconds = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, code, message, seconds > 0 ? seconds * 1000 : undefined);
}

function parse(text, read = JSON.parse) {
  try {
    return text === "" ? null : read(text);
  } catch {
    return null;
  }
}

function reached() {
  if (isReachable.value) return;
  isReachable.value = true;
  recoveries.value += 1;
}

/** Marks the server unreachable and asks for its health until there is an answer. */
export function lost() {
  if (!isReachable.value) return;
  isReachable.value = false;
  const retry = async () => {
    if (isReachable.value) return;
    try {
      await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(HEALTH_LIMIT) });
      reached();
    } catch {
      setTimeout(retry, 1500);
    }
  };
  setTimeout(retry, 1000);
}

/** All items of a paged list, up to `most`. `isCut` of the list is true if there are more. */
export async function all(path, query = {}, most = 10_000) {
  const items = [];
  let cursor;
  do {
    const page = await get(path, { ...query, limit: 200, cursor });
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  items.isCut = Boolean(cursor);
  return items;
}
