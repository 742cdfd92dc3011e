// Every view, empty and filled, light, dark and on a phone: axe finds nothing serious, and nothing is wider than the window.

import assert from "node:assert/strict";
import { checkAccessibility, loaded, logIn, open, PHONE, visit } from "../browser.mjs";
import { admin, emit, eventually, get, post, receiver } from "../server.mjs";

const VIEWS = ["overview", "events", "events?tab=live", "sinks", "sinks/new", "sinks?tab=methods", "sources", "sources/new", "spaces",
  "methods", "scripts", "scripts/new", "mcp", "tokens", "users", "roles", "groups", "audit", "account"];

export default async function accessibility(browser) {
  const kinds = [["light", {}], ["dark", { colorScheme: "dark" }], ["phone", { viewport: PHONE }]];
  for (const [name, options] of kinds) {
    const page = await open(browser, options);
    await logIn(page, admin.name, admin.password);
    if (name === "dark") await fill();
    for (const path of [...VIEWS, ...(name === "light" ? [] : await filledViews())]) {
      await visit(page, path);
      await page.locator("main h1").waitFor();
      await loaded(page);
      await checkAccessibility(page, `${path}, ${name}`);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wider, 0, `${path}, ${name}: wider than the window by ${wider}`);
    }
    await page.expectNoFaults();
    await page.context().close();
  }
}

async function fill() {
  await post("/api/event-sinks",
    { name: "good", owner: "global", events: "custom.*", type: "webhook", webhook: { url: receiver("/echo") } });
  await post("/api/event-sinks",
    { name: "bad", owner: "global", events: "custom.*", type: "webhook", webhook: { url: receiver("/fail") } });
  await post("/api/scripts", { name: "script", content: "return" });
  await post("/api/spaces", { name: "notes" });
  await post("/api/sources", { slug: "open", verify: { type: "none", insecure: true } });
  await post("/api/groups", { name: "writers" });
  const id = await emit("deploy.done", { version: "1" });
  await eventually("the event to be given up",
    async () => (await get(`/api/events/${id}`)).deliveries.some((delivery) => delivery.state === "dead"));
}

async function filledViews() {
  const first = async (path) => (await get(path)).items[0].id;
  const bad = (await get("/api/event-sinks")).items[1].id;
  return [
    `events/${await first("/api/events?pattern=custom.*")}`, `sinks/${bad}`, `sinks/${bad}?tab=edit`, `sinks/${bad}?tab=test`,
      `sinks/${bad}?tab=letters`, `sinks/${bad}?tab=secret`,
    `sources/${await first("/api/sources")}`, `sources/${await first("/api/sources")}?tab=edit`, `spaces/${await first("/api/spaces")}`,
      `scripts/${await first("/api/scripts")}`, `users/${await first("/api/users")}`,
  ];
}
