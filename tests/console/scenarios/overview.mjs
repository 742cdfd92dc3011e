// The overview: figures of the last hour as they come, each leading to its list.

import assert from "node:assert/strict";
import { join } from "node:path";
import { base, checkAccessibility, loaded, logIn, open, PHONE, picture, visit } from "../browser.mjs";
import { admin, api, createUser, emit, eventually, get, post, receiver, svc } from "../server.mjs";

/** The size of a queue, events that overflow it, and events that wait. */
const [QUEUE, DROPPED, WAITING] = [20, 3, 5];

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
  await fillQueues();
  await loseSpaces();
  // With the event of the new space and that of the other user they are at least fourteen, and the service reports the failing sink.
  for (let n = 0; n < 12; n += 1) await emit(n % 3 === 0 ? "deploy.done" : "build.done", { n });
  const figure = (name) => page.locator("a.figure", { has: page.getByText(name, { exact: true }) }).locator("strong");
  await eventually("the events to be counted", async () => Number(await figure("events").innerText()) >= 14);
  await eventually("the failing sink to be named", async () => (await page.getByRole("link", { name: "bad" }).count()) === 1);
  await page.getByRole("img", { name: /events \d\d, delivered/ }).waitFor();
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

/** Events that wait for a paused sink, and events for which another one had no room while it was paused. */
async function fillQueues() {
  const paused = (name) => ({ name, owner: "global", events: `custom.${name}`, active: false, type: "webhook",
    webhook: { url: receiver("/echo") } });
  await post("/api/event-sinks", paused("waits"));
  const { id } = await post("/api/event-sinks", paused("drops"));
  for (let n = 0; n < WAITING; n += 1) await emit("waits", { n });
  for (let n = 0; n < QUEUE + DROPPED; n += 1) await emit("drops", { n });
  await api("PATCH", `/api/event-sinks/${id}`, { active: true });
}

/** A space whose check fails, and one whose agent went away without a word. */
async function loseSpaces() {
  const start = async (name, more) => {
    const space = await post("/api/spaces", { name, ...more });
    const agent = svc(["agent", "start", "--listen", "127.0.0.1:0", "--data", join(process.env.CONSOLE_SCRATCH, name)],
      { SVC_SERVER: base, SVC_AGENT_TOKEN: space.agent_token });
    await eventually(`the agent of ${name}`, async () => (await get(`/api/spaces/${space.id}`)).linked);
    return agent;
  };
  await start("sick", { health_check: { type: "command", command: "false", interval: "200ms", failures: 1 } });
  (await start("gone")).kill("SIGKILL");
  await eventually("a sick space and an agent away", async () => {
    const { spaces } = await get("/api/activity");
    return spaces.unhealthy === 1 && spaces.away === 1;
  });
}

/** Follows every figure to its list, and counts there what the figure counted. */
async function checkFigures(page) {
  await eventually("what can be delivered to be so", async () => (await get("/api/activity")).queues.depth === WAITING);
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
  const figures = [
    ["events", "events?since=TIME", rows("Events")],
    ["deliveries", "events?attempt=delivered&attempt_since=TIME&managed=true", attempts("delivered", "skipped")],
    ["failed attempts", "events?attempt=failed&attempt_since=TIME&managed=true", attempts("failed", "dead")],
    ["dropped", "events?state=dropped&since=TIME&managed=true", rows("Events"), DROPPED],
    ["waiting", "events?state=queued&managed=true", rows("Events"), WAITING],
    ["dead letters", "events?state=dead&managed=true", rows("Events")],
    ["sinks that fail", "sinks?status=failing%2Cquarantined", rows("Sinks")],
    ["sinks that drop", "sinks?status=dropping", rows("Sinks"), 1],
    ["unhealthy spaces", "spaces?health=unhealthy", rows("Spaces"), 1],
    ["agents away", "spaces?agent=away", rows("Spaces"), 1],
  ];
  for (const [name, path, count, expected] of figures) {
    // The service may report something between the two counts.
    await eventually(`${name}: as many in the list as the figure counts`, async () => {
      await visit(page, "overview");
      // That of the waiting events tells since when the oldest waits.
      const text = name === "waiting" ? /^waiting, the oldest since/ : name;
      const figure = page.locator("a.figure", { has: page.getByText(text, { exact: true }) });
      await figure.waitFor();
      const counted = Number((await figure.locator("strong").innerText()).replace(/\D/g, ""));
      await figure.click();
      await page.waitForURL((url) => url.hash.replace(/\d{4}-\d\d-\d\dT[^&]*/, "TIME") === `#/${path}`);
      await loaded(page);
      return counted > 0 && counted === (expected ?? counted) && (await count()) === counted;
    });
  }
}
