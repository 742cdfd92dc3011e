// Logging in, the first password, the theme, the keys, the back button, an unreachable server, logging out.

import assert from "node:assert/strict";
import { base, checkAccessibility, logIn, open, picture, visit } from "../browser.mjs";
import { admin } from "../server.mjs";

export default async function session(browser) {
  const page = await open(browser, { expected: [/401/, /net::ERR_INTERNET_DISCONNECTED/] });
  await page.goto(`${base}/#/tokens`);
  await page.getByRole("heading", { name: "Log in to svc" }).waitFor();
  await checkAccessibility(page, "login");
  await picture(page, "login");
  await page.getByLabel("Name").fill("admin");
  await page.getByLabel("Password").fill("a guess");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Password").fill(admin.password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Tokens", level: 1 }).waitFor();

  // The first password is asked to be changed, and other sessions of the user end with it.
  await page.getByRole("link", { name: "Choose your own" }).click();
  await page.getByLabel("Present password").fill(admin.password);
  await page.getByLabel("New password", { exact: true }).fill("correct horse battery");
  await page.getByLabel("New password again").fill("correct horse");
  assert.equal(await page.getByText("The two differ.").count(), 1);
  await page.getByLabel("New password again").fill("correct horse battery");
  await page.getByRole("button", { name: "Change the password" }).click();
  await page.getByText("The password is changed").waitFor();
  assert.equal(await page.getByRole("link", { name: "Choose your own" }).count(), 0);

  // Keys, addresses, back.
  await page.keyboard.press("Escape");
  await page.locator("#main").focus();
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.getByRole("heading", { name: "Sinks", level: 1 }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await checkAccessibility(page, "help");
  await page.keyboard.press("Escape");
  await page.getByLabel("Status").selectOption("failing");
  await page.waitForURL(/status=failing/);
  await page.goBack();
  await page.waitForURL((url) => url.hash === "#/sinks");
  assert.equal(await page.getByLabel("Status").inputValue(), "");
  await page.goBack();
  await page.getByRole("heading", { name: "Account", level: 1 }).waitFor();
  await page.keyboard.press("/");
  await page.getByLabel("Search views, sinks, methods and spaces").fill("aud");
  await page.getByRole("list", { name: "Results" }).getByRole("link", { name: /Audit/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Audit", level: 1 }).waitFor();

  // Dark and light stay with the browser; nothing secret does.
  await page.getByRole("button", { name: "Dark colours" }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await page.reload();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  const stored = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
  assert.deepEqual(Object.keys(JSON.parse(stored)).sort(), ["svc.login", "svc.theme"]);
  assert.equal(await page.evaluate(() => document.cookie), "", "the session's cookie is out of reach of scripts");

  // A server that cannot be reached says so, and the page recovers by itself.
  await visit(page, "overview");
  await page.getByText("events", { exact: true }).first().waitFor();
  await page.context().setOffline(true);
  await page.locator(".banner").getByText("The server cannot be reached").waitFor();
  await page.context().setOffline(false);
  await page.locator(".banner").getByText("The server cannot be reached").waitFor({ state: "detached" });

  await page.locator(".user-menu summary").click();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("You are logged out.").waitFor();
  const status = await page.evaluate(async () => (await fetch("/api/whoami")).status);
  assert.equal(status, 401);
  await page.expectNoFaults();

  // A session that the server has ended: the page says so, and comes back to the same view.
  const other = await open(browser, { expected: [/401/] });
  await logIn(other, "admin", "correct horse battery");
  await visit(other, "users");
  await other.getByRole("heading", { name: "Users", level: 1 }).waitFor();
  await other.evaluate(() => fetch("/api/auth/logout", { method: "POST" }));
  await other.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Roles" }).click();
  await other.getByText("Your session has ended.").waitFor();
  await other.getByLabel("Name").fill("admin");
  await other.getByLabel("Password").fill("correct horse battery");
  await other.getByRole("button", { name: "Log in" }).click();
  await other.getByRole("heading", { name: "Roles", level: 1 }).waitFor();
  await other.expectNoFaults();
}
