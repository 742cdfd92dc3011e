// A server that hangs, and a live stream that is refused: both are told, and the page recovers by itself.

import assert from "node:assert/strict";
import { base, logIn, open, visit } from "../browser.mjs";
import { admin, api, emit, eventually, get, post, receiver } from "../server.mjs";

const PID = Number(process.env.CONSOLE_PID);

/** Streams that one user may have open. */
const STREAMS = 16;

export default async function hanging(browser) {
  await post("/api/event-sinks",
    { name: "good", owner: "global", events: "custom.*", type: "webhook", webhook: { url: receiver("/echo") } });
  const page = await open(browser, { expected: [/net::ERR_ABORTED/, /net::ERR_FAILED/, /429/] });
  await logIn(page, admin.name, admin.password);
  await refusedStream(page);
  await hungServer(page);
  await lostFiles(page);
  await page.expectNoFaults();
}

/** All streams of the user are taken: the tail says why it is refused, and is there once one is free. */
async function refusedStream(page) {
  const taken = new AbortController();
  const headers = { Authorization: `Bearer ${process.env.CONSOLE_TOKEN}` };
  const streams = Array.from({ length: STREAMS }, () => fetch(`${base}/api/events/stream`, { headers, signal: taken.signal }));
  for (const stream of await Promise.all(streams)) assert.equal(stream.status, 200);
  await visit(page, "events?tab=live");
  await page.getByRole("alert").getByText(`you watch ${STREAMS} streams already`).waitFor();
  await page.getByText("The next try is at").waitFor();
  assert.equal(await page.getByText("Waiting for events").count(), 0, "it does not pretend to wait");
  taken.abort();
  await page.getByText("connected").waitFor();
  await page.getByText(`you watch ${STREAMS} streams already`).waitFor({ state: "detached" });
  await emit("build.done");
  await page.getByRole("log").getByText("custom.build.done").waitFor();
}

/** The process of the server stands still, so that requests are taken and not answered. */
async function hungServer(page) {
  await visit(page, "sinks");
  await page.getByRole("link", { name: "good" }).waitFor();
  // The list follows what others change.
  const [{ id }] = (await get("/api/event-sinks")).items;
  await api("PATCH", `/api/event-sinks/${id}`, { active: false });
  await page.getByRole("row", { name: /good/ }).getByText("paused").waitFor();
  process.kill(PID, "SIGSTOP");
  try {
    await page.getByText("The server cannot be reached. What you see may be out of date").waitFor();
    await page.getByText(/has not answered within 20 seconds\. What is shown is of/).waitFor();
    assert.equal(await page.getByRole("link", { name: "good" }).count(), 1, "the rows that were read stay");
  } finally {
    process.kill(PID, "SIGCONT");
  }
  await page.getByText("The server cannot be reached").waitFor({ state: "detached" });
  await eventually("the error to be gone", async () => (await page.getByText("has not answered within").count()) === 0);
}

/** Files of a view that could not be loaded are loaded once the server answers again, and the page says so meanwhile. */
async function lostFiles(page) {
  const lose = (file) => page.route(`**/${file}`, (route) => route.abort(), { times: 1 });
  await lose("views/audit.js");
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Audit" }).click();
  await page.getByText("This view could not be loaded. It is tried again by itself.").waitFor();
  await page.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
  await lose("vendor/editor.js");
  await visit(page, "scripts/new");
  await page.getByText("The editor could not be loaded.").first().waitFor();
  await page.getByRole("textbox", { name: "Source of the script" }).and(page.locator(".cm-content")).waitFor();
  assert.equal(await page.getByText("The editor could not be loaded.").count(), 0);
}
