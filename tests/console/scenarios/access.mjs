// Tokens, users, roles, groups, the audit log; and what a user may not do is not offered and, tried by hand, refused.

import assert from "node:assert/strict";
import { base, checkAccessibility, logIn, open, picture, visit } from "../browser.mjs";
import { admin, api, createUser, eventually, get, post } from "../server.mjs";

export default async function access(browser) {
  const page = await open(browser);
  await logIn(page, admin.name, admin.password);

  // A group, a role and a user of both.
  await visit(page, "groups");
  await page.getByRole("button", { name: "New group" }).first().click();
  await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("writers");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("link", { name: "writers" }).waitFor();
  await checkAccessibility(page, "groups");
  await visit(page, "roles");
  await page.getByRole("button", { name: "New role" }).click();
  await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("caller");
  await page.getByLabel("Call methods").check();
  await checkAccessibility(page, "new role");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "caller" }).waitFor();
  await visit(page, "users");
  await page.getByRole("button", { name: "New user" }).click();
  await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("eve");
  await page.getByLabel("First password").fill("correct horse");
  await page.getByRole("dialog").getByLabel("caller").check();
  await page.getByRole("dialog").getByLabel("writers").check();
  await page.getByRole("button", { name: "Make the user" }).click();
  await page.getByRole("heading", { name: "eve", level: 1 }).waitFor();
  await checkAccessibility(page, "user");
  const eve = (await get("/api/users")).items.find((user) => user.name === "eve");
  assert.deepEqual([eve.roles[0].name, eve.groups[0].name], ["caller", "writers"]);
  await visit(page, "users?q=ev");
  await eventually("one row", async () => (await page.getByRole("table", { name: "Users" }).getByRole("row").count()) === 2);
  await picture(page, "users");

  // A token is shown once, and works.
  await visit(page, "tokens");
  await page.getByRole("button", { name: "New token" }).first().click();
  await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill("ci");
  await page.getByLabel("methods: list and call methods").check();
  await checkAccessibility(page, "new token");
  await page.getByRole("button", { name: "Make the token" }).click();
  const token = await page.locator(".secret code").innerText();
  const reaches = async (path) => (await fetch(`${base}${path}`, { headers: { Authorization: `Bearer ${token}` } })).status;
  assert.deepEqual([await reaches("/api/methods"), await reaches("/api/spaces")], [200, 403]);
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), token);
  await page.getByRole("button", { name: "Done" }).click();
  assert.equal((await page.content()).includes(token), false);
  await page.getByRole("button", { name: "Delete ci" }).click();
  await page.getByRole("dialog").getByText(/It was last used/).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("The token ci is deleted.").waitFor();
  assert.equal(await reaches("/api/methods"), 401);
  await checkAccessibility(page, "tokens");

  // The audit log has all of it.
  await visit(page, "audit?action=user.*");
  await page.getByRole("button", { name: "user.create" }).first().click();
  await page.getByRole("dialog").getByText("eve").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  // The focus is back where the dialog was opened from.
  await eventually("the focus to be back", () => page.evaluate(() => document.activeElement.innerText === "user.create"));
  await checkAccessibility(page, "audit");
  await page.expectNoFaults();

  // Eve: only what her role has is offered, and an address by hand is answered with a reason.
  const hers = await open(browser, { expected: [/403/] });
  await logIn(hers, "eve", "correct horse");
  const offered = await hers.getByRole("navigation", { name: "Views" }).getByRole("link").allInnerTexts();
  assert.deepEqual(offered, ["Methods", "Scripts", "Tokens"]);
  await hers.getByRole("heading", { name: "Methods", level: 1 }).waitFor();
  await visit(hers, "users");
  await hers.getByText("Users are not for you").waitFor();
  await visit(hers, "scripts");
  assert.equal(await hers.getByRole("link", { name: "New script" }).count(), 0);
  await checkAccessibility(hers, "a view of a user with few permissions");
  const refused = await hers.evaluate(async () => {
    const answers = [];
    for (const [method, path, body] of [["GET", "/api/users"], ["GET", "/api/audit"], ["GET", "/api/event-sinks"],
      ["POST", "/api/events/emit", { type: "a" }], ["POST", "/api/roles", { name: "x", permissions: [] }]]) {
      const response = await fetch(path, { method, headers: { "Content-Type": "application/json" }, body: body && JSON.stringify(body) });
      answers.push(response.status);
    }
    return answers;
  });
  assert.deepEqual(refused, [403, 403, 403, 403, 403]);
  await hers.expectNoFaults();

  // A user of one's own sinks is offered no global ones.
  await post("/api/users", { name: "ada", password: "correct horse", roles: ["member"] });
  const ada = await open(browser);
  await logIn(ada, "ada", "correct horse");
  await visit(ada, "sinks/new");
  await ada.getByLabel("Owner").waitFor();
  assert.deepEqual(await ada.getByLabel("Owner").locator("option").allInnerTexts(), ["Me: my own events"]);
  await deadLetters(ada);
  await ada.expectNoFaults();

  // Only the owner of a space is offered its agent token, which acts as the owner.
  await visit(ada, "spaces");
  await ada.getByRole("button", { name: "New space" }).first().click();
  await ada.getByRole("dialog").getByLabel("Name", { exact: true }).fill("hers");
  await ada.getByRole("button", { name: "Make the space" }).click();
  await ada.getByRole("button", { name: "Done" }).click();
  await ada.getByRole("button", { name: "New agent token" }).waitFor();
  await visit(page, ada.url().split("#/")[1]);
  await page.getByRole("heading", { name: "hers", level: 1 }).waitFor();
  await page.getByRole("button", { name: "Delete" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "New agent token" }).count(), 0);
  await managing(browser, eve);
}

/** Somebody who manages users, but not roles, gives what it has, and changes only those who have no more. */
async function managing(browser, eve) {
  const clara = await createUser("clara", ["manage_users", "use_methods"]);
  const page = await open(browser, { expected: [/403/] });
  await logIn(page, "clara", "correct horse");
  await visit(page, "users");
  await page.getByRole("button", { name: "New user" }).click();
  await page.getByRole("dialog").getByLabel("caller").waitFor();
  const offered = await page.getByRole("dialog").getByRole("group", { name: "Roles" }).getByRole("checkbox").count();
  assert.equal(offered, 2, "caller and the role of clara herself");
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "admin" }).click();
  await page.getByText("This user has permissions that you lack").waitFor();
  for (const name of ["Save", "Set the password", "Delete"]) assert.equal(await page.getByRole("button", { name }).count(), 0, name);
  await visit(page, `users/${eve.id}`);
  await page.getByRole("button", { name: "Save" }).waitFor();
  await page.getByRole("button", { name: "Delete" }).waitFor();
  // What the user may do is read anew when it saves itself, and when it is refused something.
  const views = page.getByRole("navigation", { name: "Views" });
  await visit(page, `users/${clara.id}`);
  await page.getByLabel("caller").check();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  await page.locator(".user-menu summary").click();
  await page.getByText("role-clara, caller").waitFor();
  await api("PATCH", `/api/users/${clara.id}`, { roles: ["caller"] });
  await views.getByRole("link", { name: "Users" }).click();
  await page.getByText("Users are not for you").waitFor();
  assert.deepEqual(await views.getByRole("link").allInnerTexts(), ["Methods", "Scripts", "Tokens"]);
  await page.expectNoFaults();
}

/** An event of a user's that a global sink and an own one have given up: only the own one can be delivered again, and looked at. */
async function deadLetters(ada) {
  const fails = { events: "custom.fails", type: "script", script: { source: 'svc.dead("no luck today")' } };
  await post("/api/event-sinks", { name: "for everybody", owner: "global", ...fails });
  const asAda = (path, body) => ada.evaluate(async ([path, body]) => {
    const response = await fetch(path, { method: body ? "POST" : "GET", headers: { "Content-Type": "application/json" }, body });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
    return response.json();
  }, [path, body && JSON.stringify(body)]);
  await asAda("/api/event-sinks", { name: "of ada", ...fails });
  const { event_id: id } = await asAda("/api/events/emit", { type: "fails", payload: {} });
  await eventually("both sinks to give up", async () => (await asAda(`/api/events/${id}`)).deliveries.every((one) => one.state === "dead"));
  await visit(ada, `events/${id}`);
  await ada.getByText("Heard by 2 sinks and methods.").waitFor();
  await ada.getByRole("link", { name: "of ada" }).waitFor();
  assert.equal(await ada.getByRole("link", { name: "for everybody" }).count(), 0);
  assert.equal(await ada.getByRole("button", { name: "Deliver again" }).count(), 1);
  await ada.locator(".timeline li", { hasText: "of ada" }).getByRole("button", { name: "Deliver again" }).click();
  await ada.getByText("It is queued again.").waitFor();
}
