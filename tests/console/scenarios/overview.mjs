// The overview: figures of the last hour as they come, each leading to its list.

import assert from "node:assert/strict";
import { checkAccessibility, logIn, open, PHONE, picture, visit } from "../browser.mjs";
import { admin, emit, eventually, post, receiver } from "../server.mjs";

export default async function overview(browser) {
  const page = await open(browser);
  await logIn(page, admin.name, admin.password);
  await page.getByText("Nothing is connected yet").waitFor();
  await post("/api/event-sinks", { name: "good", owner: "global", events: "custom.*", type: "webhook", webhook: { url: receiver("/echo") } });
  await post("/api/event-sinks", { name: "bad", owner: "global", events: "custom.deploy.*", type: "webhook", webhook: { url: receiver("/fail") } });
  await post("/api/spaces", { name: "notes" });
  // With the event of the new space they are thirteen, and the service reports the failing sink.
  for (let n = 0; n < 12; n += 1) await emit(n % 3 === 0 ? "deploy.done" : "build.done", { n });
  const figure = (name) => page.locator("a.figure", { has: page.getByText(name, { exact: true }) }).locator("strong");
  await eventually("the events to be counted", async () => Number(await figure("events").innerText()) >= 13);
  await eventually("the failing sink to be named", async () => (await page.getByRole("link", { name: "bad" }).count()) === 1);
  await page.getByRole("img", { name: /events 1\d, delivered/ }).waitFor();
  await page.locator(".chart canvas").waitFor();
  await eventually("the dead letters to be counted", async () => Number(await figure("dead letters").innerText()) > 0);
  await picture(page, "overview");
  await checkAccessibility(page, "overview");
  for (const [name, path] of [["sinks that fail", "sinks?status=failing"], ["dead letters", "events?state=dead"], ["agents away", "spaces?agent=away"], ["waiting", "events?state=queued"]]) {
    await visit(page, "overview");
    await page.locator("a.figure", { hasText: name }).click();
    await page.waitForURL((url) => url.hash === `#/${path}`);
  }
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
