// Events: raising one, the history and its filters, one event's page, the live tail.

import assert from "node:assert/strict";
import { base, checkAccessibility, logIn, open, picture, visit, write } from "../browser.mjs";
import { admin, emit, eventually, get, post, receiver } from "../server.mjs";

const webhook = (name, events, path,
  more = {}) => ({ name, owner: "global", events, type: "webhook", webhook: { url: receiver(path) }, ...more });

export default async function events(browser) {
  await post("/api/event-sinks", webhook("good", "custom.deploy.*", "/echo"));
  const bad = await post("/api/event-sinks", webhook("bad", "custom.deploy.*", "/fail"));
  await post("/api/event-sinks", webhook("other", "custom.build.*", "/echo"));
  await post("/api/event-sinks", webhook("main only", "custom.deploy.*", "/echo", { filter: "event.data.branch == 'main'" }));
  const page = await open(browser);
  await logIn(page, admin.name, admin.password);

  await visit(page, "events");
  await page.getByText("No events yet").waitFor();
  await page.getByRole("button", { name: "Raise an event" }).click();
  await page.getByRole("dialog").getByLabel("Type").fill("deploy.done");
  await write(page, "Payload, a JSON object", '{"branch": "next", "version": "1.2"}');
  await checkAccessibility(page, "raise an event");
  await page.getByRole("button", { name: "Raise", exact: true }).click();

  // The event's page: who heard it, each attempt, who did not and why.
  await page.getByRole("heading", { name: "custom.deploy.done", level: 1 }).waitFor();
  const id = page.url().split("/").at(-1);
  await page.getByText("Heard by 2 sinks and methods.").waitFor();
  await eventually("the event to be given up by one sink",
    async () => (await get(`/api/events/${id}`)).deliveries.some((delivery) => delivery.state === "dead"));
  await page.getByRole("button", { name: "Deliver again" }).waitFor();
  await page.getByText("Attempt 3").waitFor();
  await page.getByText("HTTP 500").first().waitFor();
  await page.getByLabel("Address and headers", { exact: true }).first().waitFor();
  const request = await page.getByLabel("Address and headers", { exact: true }).first().innerText();
  assert.match(request, new RegExp(`^POST ${receiver("/fail")}\n`));
  assert.match(request, new RegExp(`\nX-Service-Event-Id: ${id}\n`));
  await page.getByLabel("Request body", { exact: true }).first().waitFor();
  assert.match(await page.getByLabel("Request body", { exact: true }).first().innerText(), /"version": "1.2"/);
  await page.getByText("no luck today").last().waitFor();
  await page.getByText("Why did others not hear it?").click();
  await page.getByText("none of its patterns `custom.build.*` matches `custom.deploy.done`").waitFor();
  await page.getByText("filtered: its filter `event.data.branch == 'main'` refuses the event").waitFor();
  await checkAccessibility(page, "event");
  await picture(page, "event");
  await page.getByRole("button", { name: "Deliver again" }).click();
  await page.getByText("It is queued again.").waitFor();
  await page.getByRole("button", { name: "Send again" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Raise", exact: true }).click();
  await eventually("the copy to be raised", async () => (await get("/api/events?pattern=custom.*")).items.length === 2);
  await page.waitForURL((url) => !url.hash.endsWith(id));

  // History: every filter is in the address.
  await emit("build.done", { note: "needle in a haystack" });
  await visit(page, "events?pattern=custom.*");
  const rows = page.getByRole("table", { name: "Events" }).getByRole("row");
  const count = async (expected) => eventually(`${expected} rows`, async () => (await rows.count()) === expected + 1);
  await count(3);
  await page.getByLabel("Text in the payload").fill("needle");
  await count(1);
  await page.waitForURL(/text=needle/);
  // The fields have what the list is filtered by, whichever way it changed.
  const filters = () => Promise.all(["Type pattern", "Text in the payload"].map((label) => page.getByLabel(label).inputValue()));
  await page.getByRole("link", { name: "Clear" }).click();
  await page.waitForURL((url) => url.hash === "#/events");
  await eventually("the fields to be empty", async () => (await filters()).join() === ",");
  await page.goBack();
  await page.waitForURL(/text=needle/);
  await eventually("the fields to be as before", async () => (await filters()).join() === "custom.*,needle");
  await count(1);
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Events" }).click();
  await page.waitForURL((url) => url.hash === "#/events");
  await eventually("the fields to be empty", async () => (await filters()).join() === ",");
  await page.getByLabel("Text in the payload").fill("haystack");
  await page.getByLabel("State").selectOption("delivered");
  await page.waitForURL((url) => url.hash.includes("text=haystack") && url.hash.includes("state=delivered"));
  await page.getByLabel("Text in the payload").fill("hay");
  await page.getByRole("link", { name: "Clear" }).click();
  await page.waitForURL((url) => url.hash === "#/events");
  await new Promise((resolve) => setTimeout(resolve, 600));
  assert.deepEqual([await filters(), new URL(page.url()).hash], [["", ""], "#/events"], "a text that was being typed is cleared too");
  await page.getByLabel("Type pattern").fill("custom.deploy.*");
  await count(2);
  await page.getByRole("combobox", { name: "Sink" }).fill("ba");
  await page.getByRole("option", { name: /^bad/ }).click();
  await page.waitForURL(new RegExp(`sink=${bad.id}`));
  await page.getByLabel("State").selectOption("delivered");
  await page.getByText("No event matches").waitFor();
  await visit(page, `events?sink=${bad.id}&state=dead`);
  await page.getByLabel("Type pattern").waitFor();
  await eventually("the filters of an address to apply", async () => (await page.getByLabel("State").inputValue()) === "dead");
  await visit(page, "events?since=2099-01-01T00:00:00Z");
  await page.getByText("No event matches").waitFor();

  await numbers(page);

  // The live tail. Its first connection has two events and ends: a sink that fails is not hidden by one that succeeds.
  const notice = (kind, data) => `event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
  const told = (type, ...states) => [
    notice("event", { id: type, type, ts: "2026-01-01T00:00:00Z", data: {} }),
    ...states.map(([sink, state]) => notice("delivery", { event_id: type, sink_id: sink, state })),
  ].join("");
  const body = told("custom.one.fails", ["a", "queued"], ["b", "delivered"]) + told("custom.mended", ["a", "queued"], ["a", "delivered"]);
  await page.route("**/api/events/stream*", (route) => route.fulfill({ contentType: "text/event-stream", body }), { times: 1 });
  await visit(page, "events?tab=live");
  const row = (type) => page.locator(".tail-row", { hasText: type });
  await row("custom.one.fails").getByText("failed").waitFor();
  await row("custom.mended").getByText("delivered").waitFor();
  await page.getByText("Events of the time without it are in the history").waitFor();
  await page.getByText("connected").waitFor();
  await emit("build.live", { n: 1 });
  const tail = page.getByRole("log");
  await tail.getByText("custom.build.live").waitFor();
  await row("custom.build.live").getByText("delivered").waitFor();
  await picture(page, "live");
  await checkAccessibility(page, "live tail");
  await page.getByRole("button", { name: "Pause" }).click();
  await emit("build.paused", { n: 2 });
  await eventually("the paused tail to count", async () => Number(await page.locator(".tail-seen").innerText()) >= 4);
  assert.equal(await tail.getByText("custom.build.paused").count(), 0);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByLabel("Type pattern of the tail").fill("custom.none.*");
  await page.waitForURL(/pattern=custom.none/);
  await page.expectNoFaults();
}

/** Numbers that the browser cannot hold are shown and sent as they are. */
async function numbers(page) {
  const payload = '{"id": 12345678901234567890, "share": 1.0, "small": 1e-400}';
  const send = (path, body) => fetch(`${base}${path}`, { method: body ? "POST" : "GET", body,
    headers: { Authorization: `Bearer ${process.env.CONSOLE_TOKEN}`, "Content-Type": "application/json" } });
  const { event_id: id } = await (await send("/api/events/emit", `{"type": "numbers", "payload": ${payload}}`)).json();
  await visit(page, "events?pattern=custom.numbers");
  await page.getByText('{"id":12345678901234567890,"share":1.0,"small":1e-400}').waitFor();
  await visit(page, `events/${id}`);
  const shown = page.getByLabel("Payload", { exact: true });
  await shown.waitFor();
  assert.equal(await shown.textContent(), '{\n  "id": 12345678901234567890,\n  "share": 1.0,\n  "small": 1e-400\n}');
  const raw = async (of) => (await (await send(`/api/events/${of}`)).text()).match(/"data":(\{[^}]*\})/)[1];
  await page.getByRole("button", { name: "Send again" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Raise", exact: true }).click();
  await page.waitForURL((url) => !url.hash.endsWith(id));
  assert.equal(await raw(page.url().split("/").at(-1)), await raw(id));
}
