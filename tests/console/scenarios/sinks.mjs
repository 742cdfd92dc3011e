// Sinks: making one with a template, errors while typing, preview, test, pause, dead letters, a new secret, deleting.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { checkAccessibility, logIn, open, picture, visit, write } from "../browser.mjs";
import { admin, command, emit, eventually, get, post, receiver } from "../server.mjs";

export default async function sinks(browser) {
  const recorded = await emit("deploy.done", { version: "9.9", who: "ada" });
  const page = await open(browser, { expected: [/400/] });
  await logIn(page, admin.name, admin.password);
  await visit(page, "sinks");
  await page.getByText("No sinks yet").waitFor();
  await page.locator("#main").focus();
  await page.keyboard.press("n");
  await page.getByRole("heading", { name: "New sink" }).waitFor();
  await page.getByLabel("Name", { exact: true }).fill("chat");
  await page.getByLabel("Owner").selectOption("global");
  await page.getByLabel("Events", { exact: true }).fill("custom.deploy.*");
  await page.getByLabel("Address").fill(receiver("/echo"));
  await page.getByLabel("Template", { exact: true }).check();

  // Completion of what is in scope, with the fields of the sample.
  await write(page, "Template of the body", "return { text = event.");
  await page.keyboard.press("Control+Space");
  await page.getByRole("option", { name: /^data/ }).waitFor();
  await page.keyboard.press("Escape");
  // A mistake is marked on its line while typing, and refused on saving.
  await write(page, "Template of the body", "local text = 1\nreturn {{ text }");
  await page.locator(".cm-lintRange-error").first().waitFor();
  await page.getByRole("button", { name: "Make the sink" }).click();
  await page.getByText(/does not compile/).first().waitFor();
  assert.equal((await get("/api/event-sinks")).items.length, 0, "nothing was stored");

  // The preview on a written and on a recorded event.
  await write(page, "Template of the body", 'return { text = "version " .. event.data.version }');
  const body = page.getByLabel("Body that would be sent", { exact: true });
  await eventually("the preview of the written event", async () => (await body.innerText().catch(() => "")).includes("version 1.2"));
  await page.getByLabel("A recorded one").check();
  await page.getByLabel("Recent events").selectOption(recorded);
  await eventually("the preview of the recorded event", async () => (await body.innerText().catch(() => "")).includes("version 9.9"));
  await page.getByText("As TOML").click();
  const toml = await page.getByLabel("TOML", { exact: true }).innerText();
  assert.match(toml, /name = "chat"/);
  assert.match(toml, /\[webhook\]\nurl = "http/);
  await checkAccessibility(page, "new sink");
  await picture(page, "sink-editor");
  await page.getByRole("button", { name: "Make the sink" }).click();
  await page.getByRole("heading", { name: "chat", level: 1 }).waitFor();
  const [{ id }] = (await get("/api/event-sinks")).items;

  // Test on the recorded event, with the response of the receiver.
  await visit(page, `sinks/${id}?tab=test`);
  await page.getByLabel("A recorded one").check();
  await page.getByLabel("Or its id").fill(recorded);
  await page.getByRole("button", { name: "Deliver", exact: true }).click();
  await page.getByText("HTTP 200").waitFor();
  assert.match(await page.getByLabel("Request body", { exact: true }).innerText(), /version 9.9/);
  await checkAccessibility(page, "test of a sink");

  // Pausing is confirmed by the server before it is shown.
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Continue" }).waitFor();
  assert.equal((await get(`/api/event-sinks/${id}`)).active, false);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();

  // Batches and holding, and back.
  await visit(page, `sinks/${id}?tab=edit`);
  await page.getByLabel("Hold: keep trying, in order").check();
  await page.getByLabel("Events in one request").fill("20");
  await page.getByLabel("Wait for others").fill("1s");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  const flow = await get(`/api/event-sinks/${id}`);
  assert.deepEqual([flow.on_failure, flow.webhook.batch.max], ["hold", 20]);
  await page.getByLabel("Dead letter", { exact: true }).check();
  await page.getByLabel("Events in one request").fill("");
  await page.getByLabel("Wait for others").fill("");
  await page.getByRole("button", { name: "Save" }).click();
  await eventually("the change back", async () => (await get(`/api/event-sinks/${id}`)).webhook.batch === undefined);

  // Changing it: only what was changed is sent, and the secret stays.
  const secret = (await get(`/api/event-sinks/${id}`)).webhook.secret;
  await visit(page, `sinks/${id}?tab=edit`);
  await page.getByLabel("Description").fill("Tells the chat");
  await page.getByLabel("Address").fill(receiver("/fail"));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  const changed = await get(`/api/event-sinks/${id}`);
  assert.deepEqual([changed.description, changed.webhook.url, changed.webhook.secret], ["Tells the chat", receiver("/fail"), secret]);

  // Dead letters: select, look, deliver again.
  for (const version of ["1", "2"]) await emit("deploy.done", { version });
  await eventually("two dead letters", async () => (await get(`/api/event-sinks/${id}`)).queue.dead === 2);
  await visit(page, `sinks/${id}?tab=letters`);
  await page.getByRole("table", { name: "Dead letters" }).getByRole("row").nth(2).waitFor();
  await checkAccessibility(page, "dead letters");
  await page.getByRole("checkbox", { name: "Select row 1" }).check();
  await post(`/api/event-sinks/${id}/test`, {});
  await page.getByRole("button", { name: "Deliver 1 again" }).click();
  await page.getByText("1 letter queued again, 1 stays.").waitFor();

  // A replay of what was given up, and what became of each number.
  await visit(page, `sinks/${id}?tab=replay`);
  await page.getByRole("button", { name: "Start the replay" }).click();
  await page.getByText("done").waitFor();
  await page.getByText(/^\d+ of \d+ queued/).waitFor();
  await checkAccessibility(page, "replay");
  await picture(page, "replay");
  await visit(page, `sinks/${id}?tab=numbers`);
  await page.getByRole("table", { name: "Numbers" }).getByText("dead-letter").first().waitFor();
  await checkAccessibility(page, "numbers");
  await visit(page, `sinks/${id}`);
  await page.getByText("failing").first().waitFor();
  await picture(page, "sink");
  await checkAccessibility(page, "sink");
  await visit(page, "sinks?status=failing");
  await page.getByRole("link", { name: "chat" }).waitFor();
  await picture(page, "sinks");
  await checkAccessibility(page, "sinks");

  // A new secret, with the former one for a grace.
  await visit(page, `sinks/${id}?tab=secret`);
  await page.getByRole("button", { name: "Replace the secret" }).click();
  await page.getByText("The former secret is used beside it").waitFor();
  const replaced = (await get(`/api/event-sinks/${id}`)).webhook.secret;
  assert.notEqual(replaced, secret);
  await page.getByText(replaced).waitFor();
  await checkAccessibility(page, "secret");

  // Deleting says what hangs on it, once.
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByText(/dead letter/).waitFor();
  await checkAccessibility(page, "deletion");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No sinks yet").waitFor();
  assert.deepEqual((await get("/api/event-sinks")).items, []);

  // A script, as a sink of one's own.
  await visit(page, "sinks/new");
  await page.getByLabel("Name", { exact: true }).fill("script");
  await page.getByLabel("Events", { exact: true }).fill("custom.*");
  await page.getByLabel("Script", { exact: true }).check();
  await write(page, "Lua of the script", 'log.info("heard " .. event.type)');
  await page.getByRole("button", { name: "Make the sink" }).click();
  await page.getByRole("heading", { name: "script", level: 1 }).waitFor();
  await emit("hello");
  await visit(page, "events");
  await page.getByRole("link", { name: "custom.hello" }).click();
  await page.getByText("Attempt 1").click();
  await page.getByText("heard custom.hello").waitFor();
  await files(page);
  await page.expectNoFaults();
}

/** The TOML that is shown is what the command reads: applied, it changes nothing. */
async function files(page) {
  const script = await post("/api/scripts", { name: "shout", owner: "global", content: "log.info(event.type)" });
  const common = { owner: "global", events: "custom.file.*" };
  const template = { lang: "text", source: 'a \\ "b" \u0007\r\ncount ${{ #events }}' };
  const headers = { "X-Token": { env: "TOKEN_OF_SERVER", prefix: "Bearer " }, "X-Json": '{"a": 1}', env: "named like a place" };
  const made = [
    await post("/api/event-sinks", { ...common, name: "stored", type: "script", script: { script_id: script.id }, on_failure: "hold" }),
    await post("/api/event-sinks", { ...common, name: "secrets", description: "it's \u007f", type: "webhook", filter: "event.data.a == 1",
      webhook: { url: { env: "URL_OF_SERVER" }, secret: { file: "/run/secret" }, headers, template, batch: { max: 5, wait: "1s" } } }),
  ];
  for (const sink of made) {
    await visit(page, `sinks/${sink.id}?tab=edit`);
    await page.getByText("As TOML").click();
    const shown = page.getByLabel("TOML", { exact: true });
    const isWhole = async () => sink.type !== "script" || (await shown.textContent()).includes('stored = "shout"');
    await eventually("the script to be named", isWhole);
    const text = await shown.textContent();
    await writeFile(join(process.env.CONSOLE_SCRATCH, `${sink.name}.toml`), text);
    assert.match(await command("sink", "apply", `${sink.name}.toml`), /unchanged/, text);
    assert.equal((await get(`/api/event-sinks/${sink.id}`)).updated_at, sink.updated_at, text);
  }
  // A secret that the server only reads is changed where it is kept.
  await visit(page, `sinks/${made[1].id}?tab=secret`);
  await page.getByText("change it where it is kept").waitFor();
  assert.equal(await page.getByRole("button", { name: "Replace the secret" }).count(), 0);
}
