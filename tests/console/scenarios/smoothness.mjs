// Speed: the first view with a long history and many sinks, a list of thousands, and a fast tail. `CONSOLE_EVENTS`, `CONSOLE_SINKS` and
// `CONSOLE_RATE` choose the size; `CONSOLE_FIRST_VIEW` and `CONSOLE_SLOWEST_FRAME` are the limits in milliseconds, which are generous
// unless a run on an idle machine with a release build chooses them.

import assert from "node:assert/strict";
import { logIn, open, visit } from "../browser.mjs";
import { admin, emit, eventually, get, post } from "../server.mjs";

const setting = (name, value) => Number(process.env[name] ?? value);
const EVENTS = setting("CONSOLE_EVENTS", 300);
const SINKS = setting("CONSOLE_SINKS", 600);
const RATE = setting("CONSOLE_RATE", 100);
const FIRST_VIEW = setting("CONSOLE_FIRST_VIEW", 5000);
const SLOWEST_FRAME = setting("CONSOLE_SLOWEST_FRAME", 1500);

/** Runs `work(n)` for each number, some at a time. */
async function many(count, work, atOnce = 32) {
  let next = 0;
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (next < count) await work(next++);
  }));
}

/** Raises many events quickly: a source makes a hundred of each request. */
async function raise(count) {
  const transform = `local events = {} for n = 1, 100 do events[n] = { type = "load.e" .. n % 50, payload = { n = n, text = "some words of a payload" } } end return events`;
  await post("/api/sources", { slug: "load", rate: 10_000, transform, verify: { type: "none", insecure: true } });
  await many(Math.ceil(count / 100), async () => {
    const response = await fetch(`${process.env.CONSOLE_URL}/in/load`, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
    assert.equal(response.status, 202, await response.text());
  }, 16);
}

export default async function smoothness(browser) {
  await many(SINKS, (n) => post("/api/event-sinks", { name: `sink ${n}`, owner: "global", events: `custom.only.${n}`, type: "webhook", webhook: { url: "https://example.com/" } }));
  await raise(EVENTS);
  const page = await open(browser);
  await logIn(page, admin.name, admin.password);
  await page.locator(".figures").waitFor();

  // The first view: from the navigation to the figures and the links, with the files in the browser's cache.
  await page.context().addInitScript(() => {
    const look = () => document.querySelector("nav.sidebar") && document.querySelector(".figures") && (window.firstView ??= performance.now());
    new MutationObserver(look).observe(document, { childList: true, subtree: true });
  });
  const times = [];
  for (let turn = 0; turn < 3; turn += 1) {
    await page.goto("about:blank");
    await page.goto(`${new URL(process.env.CONSOLE_URL)}#/overview`);
    await page.locator(".figures").waitFor();
    times.push(await page.evaluate(() => window.firstView));
  }
  const first = Math.min(...times);
  console.log(`first view with ${EVENTS} events and ${SINKS} sinks: ${first.toFixed(0)} ms`);
  assert.ok(first < FIRST_VIEW, `the first view took ${first} ms`);

  // A list of thousands: all of it is reached by scrolling, and few rows are in the page.
  await visit(page, "sinks");
  const rows = page.getByRole("table", { name: "Sinks" }).getByRole("row");
  await rows.nth(5).waitFor();
  const slowest = await page.evaluate(async (wanted) => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    let [slowest, before] = [0, performance.now()];
    const deadline = before + 60_000;
    while (Number(document.querySelector("[role=table]").getAttribute("aria-rowcount")) < wanted && performance.now() < deadline) {
      window.scrollBy(0, 4000);
      await frame();
      const now = performance.now();
      [slowest, before] = [Math.max(slowest, now - before), now];
    }
    return slowest;
  }, SINKS);
  assert.equal(Number(await page.getByRole("table", { name: "Sinks" }).getAttribute("aria-rowcount")), SINKS);
  assert.ok((await rows.count()) < 120, "only the rows in view are in the page");
  console.log(`slowest frame while scrolling through ${SINKS} sinks: ${slowest.toFixed(0)} ms`);
  assert.ok(slowest < SLOWEST_FRAME, `a frame took ${slowest} ms`);

  // The tail at its rate, for three seconds, with the frames measured.
  await visit(page, "events?tab=live");
  await page.getByText("connected").waitFor();
  const before = (await get("/api/activity")).events.reduce((sum, count) => sum + count, 0);
  const frames = page.evaluate(async (time) => {
    const lengths = [];
    let before = performance.now();
    const end = before + time;
    while (before < end) {
      await new Promise((resolve) => requestAnimationFrame(resolve));
      const now = performance.now();
      lengths.push(now - before);
      before = now;
    }
    return lengths;
  }, 3000);
  const started = Date.now();
  await many(RATE * 3, async (n) => {
    const due = started + (n / RATE) * 1000;
    if (due > Date.now()) await new Promise((resolve) => setTimeout(resolve, due - Date.now()));
    await emit("tail.event", { n });
  }, 64);
  const lengths = (await frames).sort((a, b) => a - b);
  const sent = (await get("/api/activity")).events.reduce((sum, count) => sum + count, 0) - before;
  const rate = sent / ((Date.now() - started) / 1000);
  const worst = lengths.at(-1);
  console.log(`tail at ${rate.toFixed(0)} events/s: ${lengths.length} frames, median ${lengths[lengths.length >> 1].toFixed(1)} ms, 99 % ${lengths[Math.floor(lengths.length * 0.99)].toFixed(1)} ms, slowest ${worst.toFixed(1)} ms`);
  assert.ok(worst < SLOWEST_FRAME, `a frame took ${worst} ms`);
  await eventually("the tail to have shown them", async () => {
    const seen = Number((await page.locator(".tail-seen").innerText()).replace(/\D/g, ""));
    const skipped = Number((await page.locator(".tail-bar").innerText()).match(/([\d,.]+) items/)?.[1].replace(/\D/g, "") ?? 0);
    return seen + skipped >= sent;
  });
  await page.expectNoFaults();
}
