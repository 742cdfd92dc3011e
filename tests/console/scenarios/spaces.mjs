// Spaces and methods: making a space, starting its agent with the command that is shown, calling a method of it, and its end.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { base, checkAccessibility, logIn, open, picture, visit } from "../browser.mjs";
import { admin, eventually, get, svc } from "../server.mjs";

const SERVER = `import json, sys
for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params", {})
    result = {"found": [params.get("query"), params.get("limit")]} if request["method"] == "search" else None
    print(json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result}), flush=True)
`;
const METHODS = `[server]
command = "python3"
args = ["server.py"]
[[methods]]
name = "{{space}}.search"
local_name = "search"
description = "Searches notes"
keywords = ["find"]
mcp_tool = true
events = ["custom.note.*"]
params_schema = { type = "object", required = ["query"], properties = { query = { type = "string", description = "Words" }, limit = { type = "integer", default = 10 } } }
`;

export default async function spaces(browser) {
  const page = await open(browser);
  await logIn(page, admin.name, admin.password);
  await visit(page, "spaces");
  await page.getByText("No spaces yet").waitFor();
  await page.getByRole("button", { name: "New space" }).first().click();
  await page.getByLabel("Name", { exact: true }).fill("notes");
  await checkAccessibility(page, "new space");
  await page.getByRole("button", { name: "Make the space" }).click();

  // The token is shown once, with the command to paste, which works as it is.
  const command = await page.getByLabel("Command", { exact: true }).innerText();
  const token = command.match(/SVC_AGENT_TOKEN=(\S+)/)[1];
  assert.match(command, new RegExp(`^SVC_SERVER=${base} SVC_AGENT_TOKEN=\\S+ svc agent start$`));
  await writeFile(join(process.env.CONSOLE_SCRATCH, "server.py"), SERVER);
  await writeFile(join(process.env.CONSOLE_SCRATCH, "methods.toml"), METHODS);
  const agent = svc(["agent", "start", "--listen", "127.0.0.1:0", "--data", join(process.env.CONSOLE_SCRATCH, "agent"), "--methods-file",
    "methods.toml"], { SVC_SERVER: base, SVC_AGENT_TOKEN: token });
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByText("connected").waitFor();
  await page.getByText("deployed").waitFor();
  assert.equal((await page.content()).includes(token), false, "the token is gone from the page");
  await eventually("the method to be published", async () => (await get("/api/methods")).methods.length === 1);
  await page.reload();
  await page.getByRole("link", { name: "notes.search" }).first().waitFor();
  await checkAccessibility(page, "space");
  await picture(page, "space");

  // It is found by a part of its name.
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByLabel("Search views, sinks, methods and spaces").fill("ote");
  await page.getByRole("list", { name: "Results" }).getByRole("link", { name: /^notes\s*space$/ }).waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await eventually("the focus to be where it was", () => page.evaluate(() => document.activeElement.innerText.startsWith("Search")));

  // The method: a form of its schema, the result, the time.
  await visit(page, "methods?q=find");
  await page.getByRole("link", { name: "notes.search" }).click();
  await page.getByLabel("query *").fill("milk");
  await page.getByRole("button", { name: "Call" }).click();
  await eventually("the result of the call",
    async () => (await page.getByLabel("Result", { exact: true }).innerText().catch(() => "")).replace(/\s/g,
    "") === '{"found":["milk",10]}');
  await page.getByText(/there and back/).waitFor();
  await page.getByLabel("limit").fill("12345678901234567890");
  await page.getByRole("button", { name: "Call" }).click();
  await page.getByLabel("Result", { exact: true }).getByText("12345678901234567890").waitFor();
  await checkAccessibility(page, "method");
  await picture(page, "method");

  // An event that the method subscribes to leads to the method.
  await visit(page, "events");
  await page.getByRole("button", { name: "Raise an event" }).click();
  await page.getByRole("dialog").getByLabel("Type").fill("note.added");
  await page.getByRole("button", { name: "Raise", exact: true }).click();
  await page.getByRole("link", { name: "See the method" }).click();
  await page.getByRole("heading", { name: "notes.search", level: 1 }).waitFor();
  await visit(page, "sinks?tab=methods");
  await page.getByRole("link", { name: "notes.search" }).click();
  await page.getByRole("heading", { name: "notes/notes.search", level: 1 }).waitFor();

  // An agent that goes away without a word is seen to be away.
  agent.kill("SIGKILL");
  await visit(page, "spaces?agent=away");
  await page.getByRole("link", { name: "notes" }).click();
  await page.getByText("Its agent is not connected.").waitFor();
  await page.getByRole("button", { name: "New agent token" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Make a new token" }).click();
  await page.getByText("The agent token of notes").waitFor();
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.getByText("stopped").first().waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByText("Its agent's token is refused").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No spaces yet").waitFor();
  await page.expectNoFaults();
}
