// The API of the daemon under test, with the administrator's token, and programs beside it.

import { execFile, spawn } from "node:child_process";
import { promisify } from "node:util";
import { base, PATIENCE } from "./browser.mjs";

export const admin = { name: "admin", password: process.env.CONSOLE_PASSWORD };

/** A request with the administrator's token; an error unless it succeeds. */
export async function api(method, path, body) {
  const response = await fetch(`${base}${path}`, {
    method,
    headers: { Authorization: `Bearer ${process.env.CONSOLE_TOKEN}`, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === "" ? null : JSON.parse(text);
}

export const get = (path) => api("GET", path);
export const post = (path, body) => api("POST", path, body);

/** Lets the administrator choose its own password, which is the same, so that no view asks for that. */
export async function choosePassword() {
  const { id } = await get("/api/whoami");
  await api("PATCH", `/api/users/${id}`, { password: admin.password });
}

/** Waits until `condition` returns a value. */
export async function eventually(what, condition) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`waited ${PATIENCE} ms for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A user with these permissions and the password `correct horse`. */
export async function createUser(name, permissions) {
  await post("/api/roles", { name: `role-${name}`, permissions });
  return post("/api/users", { name, password: "correct horse", roles: [`role-${name}`] });
}

/** Emits an event as the administrator and returns its id. */
export async function emit(type, payload = {}) {
  return (await post("/api/events/emit", { type, payload })).event_id;
}

/** The address at the receiver of the test, which answers 500 under `/fail` and echoes under `/echo`. */
export const receiver = (path) => `${process.env.CONSOLE_RECEIVER}${path}`;

/** Runs a command of the program under test as the administrator and returns its output; an error unless it succeeds. */
export async function command(...args) {
  const env = { ...process.env, SVC_SERVER: base, SVC_TOKEN: process.env.CONSOLE_TOKEN };
  const { stdout } = await promisify(execFile)(process.env.CONSOLE_BIN, args, { env, cwd: process.env.CONSOLE_SCRATCH });
  return stdout;
}

/** Runs the program under test; it ends with the scenario. */
export function svc(args, env = {}) {
  const child = spawn(process.env.CONSOLE_BIN, args,
    { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "inherit"], cwd: process.env.CONSOLE_SCRATCH });
  process.on("exit", () => child.kill("SIGKILL"));
  return child;
}
