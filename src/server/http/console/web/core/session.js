// The logged-in user: who it is, what it may do, and when the session ends. The browser stores the cookie, which scripts cannot
// read, and a mark that there was a login, so that a first visit need not ask the server.

import { computed, signal } from "./html.js";
import { get, onForbidden, onSessionEnd, post } from "./api.js";

/** `undefined` until the server has told, `null` if nobody is logged in, otherwise the answer of `/api/whoami`. */
export const user = signal(undefined);

/** The reason to show above the form of the login. */
export const loginNotice = signal("");

/** True from five minutes before the session ends. */
export const isEnding = signal(false);

/** Moments before the end of a session at which the page says so. */
const WARNING = 5 * 60_000;

/** The longest time that a timer of a browser can take. */
const LONGEST_TIMER = 2 ** 31 - 1;

const ENDED = "Your session has ended. Log in to continue where you were.";

let timers = [];

/** True if the user has one of these permissions; without any, for everybody. */
export function may(...permissions) {
  const has = user.value?.permissions ?? [];
  return permissions.length === 0 || permissions.some((permission) => has.includes(permission));
}

export const managesSinks = computed(() => may("manage_own_event_sinks", "manage_global_event_sinks"));
export const managesScripts = computed(() => may("manage_own_scripts", "manage_global_scripts"));
export const usesSpaces = computed(() => may("use_spaces", "manage_spaces"));

/** True if the user may change records of this owner, `me` or `global`, of a kind of permission such as `event_sinks`. */
export function manages(owner, kind) {
  return owner === "global" ? may(`manage_global_${kind}`) : may(`manage_own_${kind}`, `manage_global_${kind}`);
}

/** True if the user has all permissions that a role or another user has, or may edit roles. No user extends its own permissions. */
export function covers(permissions) {
  return may("manage_roles") || permissions.every((permission) => may(permission));
}

/** True if the user may give a role to others. */
export const mayGive = (role) => covers(role.permissions);

/** Asks the server who is logged in. */
export async function loadSession() {
  if (user.value === undefined && !hasMark()) {
    user.value = null;
    return;
  }
  try {
    start(await get("/api/whoami", {}, { quiet: true }));
  } catch (error) {
    if (error.status !== 401) throw error;
    if (user.value) end(ENDED);
    else user.value = null;
  }
}

export async function login(name, password) {
  start(await post("/api/auth/login", { name, password }, { quiet: true }));
  loginNotice.value = "";
}

export async function logout() {
  await post("/api/auth/logout");
  end("You are logged out.");
}

/** Changes the user's own password and reads the session anew. */
export async function changePassword(current, next, revokeTokens) {
  await post("/api/auth/password", { current, new: next, revoke_tokens: revokeTokens }, { quiet: true });
  await loadSession();
}

onSessionEnd(() => {
  if (user.value) end(ENDED);
});

/** A refusal means that the user may do less than the page offers: what it may do is read anew, once at a time. */
let isAsking = false;
onForbidden(() => {
  if (!user.value || isAsking) return;
  isAsking = true;
  loadSession().catch(() => {}).finally(() => (isAsking = false));
});

const MARK = "svc.login";

function hasMark() {
  try {
    return localStorage.getItem(MARK) !== null;
  } catch {
    return true;
  }
}

function setMark(isSet) {
  try {
    if (isSet) localStorage.setItem(MARK, "1");
    else localStorage.removeItem(MARK);
  } catch {
    // Without storage the server is asked.
  }
}

function start(whoami) {
  setMark(true);
  // The same answer draws nothing anew.
  if (JSON.stringify(user.value) !== JSON.stringify(whoami)) user.value = whoami;
  isEnding.value = false;
  timers.forEach(clearTimeout);
  if (!whoami.expires_at) return;
  const left = Date.parse(whoami.expires_at) - Date.now();
  const after = (time, action) => setTimeout(action, Math.min(Math.max(time, 0), LONGEST_TIMER));
  timers = [
    after(left - WARNING, () => (isEnding.value = true)),
    // Without an answer, the next request tells that the session has ended.
    after(left, () => loadSession().catch(() => {})),
  ];
}

function end(notice) {
  timers.forEach(clearTimeout);
  setMark(false);
  loginNotice.value = notice;
  isEnding.value = false;
  user.value = null;
}
