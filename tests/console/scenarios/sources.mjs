// Sources: making one, a signed and an unsigned request, a transform that fails, its dead letter, and its mending.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { base, checkAccessibility, logIn, open, picture, visit, write } from "../browser.mjs";
import { admin, command, eventually, get, post } from "../server.mjs";

const SECRET = "a-secret-of-github";

async function deliver(body, secret = SECRET) {
  const signature = `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`;
  const headers = { "Content-Type": "application/json", "X-Hub-Signature-256": signature, "X-GitHub-Delivery": crypto.randomUUID() };
  return (await fetch(`${base}/in/repo`, { method: "POST", headers, body })).status;
}

export default async function sources(browser) {
  const page = await open(browser, { expected: [/400/] });
  await logIn(page, admin.name, admin.password);
  await visit(page, "sources");
  await page.getByText("No sources yet").waitFor();
  await page.getByRole("link", { name: "New source" }).first().click();
  await page.getByLabel("Slug").fill("repo");
  await page.getByLabel("Scheme").selectOption("github");
  await page.getByLabel("Secret").fill(SECRET);
  await write(page, "Transform, in Lua", 'return { type = "push", payload = { branch = request.json.ref:upper() } }');
  await checkAccessibility(page, "new source");
  await page.getByRole("button", { name: "Make the source" }).click();
  await page.getByRole("heading", { name: "repo", level: 1 }).waitFor();
  assert.equal(await deliver('{"ref": "main"}'), 202);
  assert.equal(await deliver('{"ref": "main"}', "another-secret-here"), 401);
  assert.equal(await deliver("{}"), 202, "it is kept as a dead letter");
  await page.getByText("The last refusal").waitFor();
  await picture(page, "source");
  await checkAccessibility(page, "source");
  const [source] = (await get("/api/sources")).items;
  await visit(page, `sources/${source.id}?tab=edit`);
  await write(page, "Body of the request", '{"ref": "next"}');
  await page.getByRole("button", { name: "Try" }).click();
  await eventually("the events of the trial",
    async () => (await page.getByLabel("Result", { exact: true }).innerText().catch(() => "")).includes("NEXT"));
  await write(page, "Transform, in Lua", 'return { type = "push", payload = { branch = request.json.ref or "none" } }');
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  assert.equal(await deliver('{"ref": "kept"}'), 202, "the secret stayed");
  await visit(page, `sources/${source.id}?tab=letters`);
  await checkAccessibility(page, "dead letters of a source");
  await page.getByRole("button", { name: "Give all again" }).click();
  await page.getByText("1 request became events, 0 failed again.").waitFor();
  const events = (await get("/api/events?pattern=custom.*")).items;
  assert.deepEqual(events.map((event) => event.data.branch).sort(), ["MAIN", "kept", "none"]);
  await verification(page);
  await page.expectNoFaults();
}

/** A change elsewhere leaves the verification as it is, and a change of it leaves what was not changed. */
async function verification(page) {
  const verify = { type: "token", secret: "a-token-of-twenty-letters", header: "authorization", prefix: "Bearer ", overlap: "2h" };
  const token = await post("/api/sources", { slug: "token", verify });
  const signed = ["header:x-time", "text:,", "text: ", "body"];
  const hmac = await post("/api/sources", { slug: "hmac", owner: "global",
    verify: { type: "hmac", secret: { env: "HMAC_SECRET" }, header: "x-signature", signed, timestamp: "x-time", tolerance: "1m" } });
  const save = async (id, fill) => {
    await visit(page, `sources/${id}?tab=edit`);
    await fill();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();
    return get(`/api/sources/${id}`);
  };
  const send = async () => (await fetch(`${base}/in/token`, { method: "POST", body: "{}",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${verify.secret}` } })).status;
  const described = await save(token.id, () => page.getByLabel("Description").fill("Told"));
  assert.deepEqual([described.description, described.verify, described.former_secrets], ["Told", token.verify, []]);
  assert.equal(await send(), 202);
  const moved = await save(token.id, () => page.getByLabel("Header with the delivery's id").fill("X-Delivery"));
  assert.deepEqual(moved.verify, { ...token.verify, id_header: "x-delivery" });
  assert.equal(await send(), 202);
  const changed = await save(hmac.id, () => page.getByLabel("Replay window").fill("2m"));
  assert.deepEqual(changed.verify, { ...hmac.verify, tolerance: "2m" });
  assert.deepEqual([changed.verify.signed, changed.verify.secret], [signed, { env: "HMAC_SECRET" }]);
  await page.getByText("As TOML").click();
  await writeFile(join(process.env.CONSOLE_SCRATCH, "hmac.toml"), await page.getByLabel("TOML", { exact: true }).textContent());
  assert.match(await command("source", "apply", "hmac.toml"), /unchanged/);
}
