// The overview: figures of the last hour as they come, each leading to its list.

import assert from "node:assert/strict";
import { base, checkAccessibility, loaded, logIn, open, PHONE, picture, visit } from "../browser.mjs";
import { admin, createUser, emit, eventually, get, post, receiver } from "../server.mjs";

export default async function overview(browser) {
  const page = await open(browser);
  await logIn(page, admin.name, admin.password);
  await page.getByText("Nothing is connected yet").waitFor();
  await post("/api/event-sinks",
    { name: "good", owner: "global", events: "custom.*", type: "webhook", webhook: { url: receiver("/echo") } });
  await post("/api/event-sinks",
    { name: "bad", owner: "global", events: "custom.deploy.*", type: "webhook", webhook: { url: receiver("/fail") } });
  await post("/api/spaces", { name: "notes" });
  await failForAnother();
  // With the event of the new space and that of the other user they are fourteen, and the service reports the failing sink.
  for (let n = 0; n < 12; n += 1) await emit(n % 3 === 0 ? "deploy.done" : "build.done", { n });
  const figure = (name) => page.locator("a.figure", { has: page.getByText(name, { exact: true }) }).locator("strong");
  await eventually("the events to be counted", async () => Number(await figure("events").innerText()) >= 14);
  await eventually("the failing sink to be named", async () => (await page.getByRole("link", { name: "bad" }).count()) === 1);
  await page.getByRole("img", { name: /events 1\d, delivered/ }).waitFor();
  await page.locator(".chart canvas").waitFor();
  await eventually("the dead letters to be counted", async () => Number(await figure("dead letters").innerText()) === 4);
  await picture(page, "overview");
  await checkAccessibility(page, "overview");
  await checkFigures(page);
  await page.expectNoFaults();

  const dark = await open(browser, { colorScheme: "dark" });
  await logIn(dark, admin.name, admin.password);
  await dark.locator(".chart canvas").waitFor();
  await picture(dark, "overview-dark");
  await checkAccessibility(dark, "overview in the dark");
  await dark.expectNoFaults();

  const phone = await open(browser, { viewport: PHONE });
  await logIn(phone, admin.name, admin.password);
  await phone.locator(".chart canvas").waitFor();
  await picture(phone, "overview-phone");
  await checkAccessibility(phone, "overview on a phone");
  await phone.getByRole("button", { name: "Menu" }).click();
  await phone.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Sinks" }).click();
  await phone.getByRole("heading", { name: "Sinks", level: 1 }).waitFor();
  await phone.getByRole("link", { name: "bad" }).waitFor();
  await picture(phone, "sinks-phone");
  const overflow = await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(overflow, 0, "nothing is wider than a phone");
  await phone.expectNoFaults();
}

/** An event that a sink of another user gives up: the administrator sees the event, and counts no failure of it. */
async function failForAnother() {
  await createUser("ada", ["use_spaces", "manage_own_event_sinks"]);
  const headers = { "Content-Type": "application/json" };
  const send = (path, body, more) => fetch(`${base}${path}`, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) });
  const login = await send("/api/auth/login", { name: "ada", password: "correct horse" });
  const session = { Cookie: login.headers.getSetCookie()[0].split(";")[0] };
  const sink = { name: "own", events: "custom.own", type: "script", script: { source: 'svc.dead("no luck today")' } };
  assert.equal((await send("/api/event-sinks", sink, session)).status, 201);
  const emitted = await send("/api/events/emit", { type: "own", payload: {} }, session);
  const { event_id: id } = await emitted.json();
  const states = async () => (await (await fetch(`${base}/api/events/${id}`, { headers: session })).json()).deliveries.map((one) => one.state);
  await eventually("the sink of the other user to give up", async () => (await states()).includes("dead"));
}

/** Follows every figure to its list, and counts there what the figure counted. */
async function checkFigures(page) {
  await eventually("all queues to be empty", async () => (await get("/api/activity")).queues.depth === 0);
  const rows = (label) => async () => Number(await page.getByRole("table", { name: label, exact: true }).getAttribute("aria-rowcount"));
  /** The attempts of these outcomes among the events that the address of the page selects. */
  const attempts = (...outcomes) => async () => {
    const query = new URL(page.url()).hash.split("?")[1];
    const { items } = await get(`/api/events?limit=200&${query}`);
    const shown = await rows("Events")();
    assert.equal(shown, items.length, "the page shows what its address selects");
    const made = items.flatMap((event) => event.deliveries).flatMap((delivery) => delivery.attempts);
    const since = new URLSearchParams(query).get("attempt_since");
    return made.filter((attempt) => outcomes.includes(attempt.outcome) && attempt.at >= since).length;
  };
  const none = (title) => async () => (await page.getByText(title).waitFor(), 0);
  const figures = [
    ["events", "events?since=TIME", rows("Events")],
    ["deliveries", "events?attempt=delivered&attempt_since=TIME&managed=true", attempts("delivered", "skipped")],
    ["failed attempts", "events?attempt=failed&attempt_since=TIME&managed=true", attempts("failed", "dead")],
    ["dropped", "events?state=dropped&since=TIME&managed=true", none("No event matches")],
    ["waiting", "events?state=queued&managed=true", none("No event matches")],
    ["dead letters", "events?state=dead&managed=true", rows("Events")],
    ["sinks that fail", "sinks?status=failing%2Cquarantined", rows("Sinks")],
    ["sinks that drop", "sinks?status=dropping", none("No sink matches")],
    ["unhealthy spaces", "spaces?health=unhealthy", none("No space matches")],
    ["agents away", "spaces?agent=away", none("No space matches")],
  ];
  const isNone = (name) => ["dropped", "waiting", "sinks that drop", "unhealthy spaces", "agents away"].includes(name);
  for (const [name, path, count] of figures) {
    // The service may report something between the two counts.
    await eventually(`${name}: as many in the list as the figure counts`, async () => {
      await visit(page, "overview");
      const figure = page.locator("a.figure", { has: page.getByText(name, { exact: true }) });
      await figure.waitFor();
      const counted = Number((await figure.locator("strong").innerText()).replace(/\D/g, ""));
      await figure.click();
      await page.waitForURL((url) => url.hash.replace(/\d{4}-\d\d-\d\dT[^&]*/, "TIME") === `#/${path}`);
      await loaded(page);
      return isNone(name) === (counted === 0) && (await count()) === counted;
    });
  }
}
