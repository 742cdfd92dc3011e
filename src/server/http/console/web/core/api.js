// Requests to the HTTP API by session cookie. A request without an answer marks the server unreachable until one succeeds;
// a 401 ends the session on this page.

import { signal } from "./html.js";

/** False while requests get no answer. */
export const isReachable = signal(true);

/** Counts up whenever the server was unreachable and is back; views load again then. */
export const recoveries = signal(0);

/** Called when the server no longer knows the session. */
let sessionEnded = () => {};

/** An error answer of the server, or no answer at all (status 0). */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function onSessionEnd(callback) {
  sessionEnded = callback;
}

export const get = (path, query, options) => send("GET", path + queryString(query), undefined, options);
export const post = (path, body, options) => send("POST", path, body, options);
export const patch = (path, body) => send("PATCH", path, body);
export const put = (path, body) => send("PUT", path, body);
export const del = (path, query) => send("DELETE", path + queryString(query));

/** `?a=1&b=2` of the values that are not empty. */
export function queryString(query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length > 0 ? `?${new URLSearchParams(pairs)}` : "";
}

async function send(method, path, body, { signal: abort, quiet = false } = {}) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const options = { method, headers, signal: abort, credentials: "same-origin" };
  if (body !== undefined) options.body = JSON.stringify(body);
  let response;
  let text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  reached();
  const answer = parse(text);
  if (response.ok) return answer;
  const { code = "error", message = `The server answered ${response.status}.` } = answer?.error ?? {};
  if (response.status === 401 && !quiet) sessionEnded();
  throw new ApiError(response.status, code, message);
}

function parse(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

function reached() {
  if (isReachable.value) return;
  isReachable.value = true;
  recoveries.value += 1;
}

/** Asks for the server's health until there is an answer. */
export function lost() {
  if (!isReachable.value) return;
  isReachable.value = false;
  const retry = async () => {
    if (isReachable.value) return;
    try {
      await fetch("/healthz", { cache: "no-store" });
      reached();
    } catch {
      setTimeout(retry, 1500);
    }
  };
  setTimeout(retry, 1000);
}

/** All items of a paged list, up to `most`. */
export async function all(path, query = {}, most = 2000) {
  const items = [];
  let cursor;
  do {
    const page = await get(path, { ...query, limit: 200, cursor });
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  return items;
}
