// Stored scripts: writing a tool, running it with a form of its schema, who uses a script, and a deletion that is refused.

import assert from "node:assert/strict";
import { checkAccessibility, logIn, open, picture, visit, write } from "../browser.mjs";
import { admin, eventually, get, post } from "../server.mjs";

const SCHEMA = { type: "object",
  properties: { name: { type: "string", minLength: 1, description: "Who is greeted" }, loud: { type: "boolean" } }, required: ["name"] };

export default async function scripts(browser) {
  const page = await open(browser, { expected: [/400/, /409/] });
  await logIn(page, admin.name, admin.password);
  await visit(page, "scripts/new");
  await page.getByLabel("Name").fill("greet");
  await page.getByLabel("Tool", { exact: true }).check();
  await write(page, "Source of the script", 'log.info("greeting")\nreturn { greeting = "hello " .. params.name }');
  await write(page, "JSON Schema of the arguments", JSON.stringify(SCHEMA));
  await page.getByRole("button", { name: "Store" }).click();
  await page.getByRole("heading", { name: "greet", level: 1 }).waitFor();
  await page.getByLabel("name *").fill("ada");
  await page.getByRole("button", { name: "Run" }).click();
  await eventually("the result",
    async () => (await page.getByLabel("Result", { exact: true }).innerText().catch(() => "")).includes("hello ada"));
  await page.getByLabel("Log", { exact: true }).getByText("greeting").waitFor();
  await picture(page, "script");
  await checkAccessibility(page, "script");

  // A mistake is refused with its line, and the stored version stays.
  await write(page, "Source of the script", "return 1\nreturn {");
  await page.getByText(/^Line 2:/).waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/`content` does not compile/).first().waitFor();
  const [tool] = (await get("/api/scripts?name=greet")).items;
  assert.match((await get(`/api/scripts/${tool.id}`)).content, /hello/);

  // A script that a sink names cannot be deleted, and the question says so.
  const used = await post("/api/scripts", { name: "used", content: "log.info(event.type)" });
  await post("/api/event-sinks", { name: "user of it", events: "custom.*", type: "script", script: { script_id: used.id } });
  await visit(page, `scripts/${used.id}`);
  await page.getByRole("dialog").getByRole("button", { name: "Leave" }).click();
  await page.getByRole("link", { name: "user of it" }).waitFor();
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("custom.deploy.done").waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByText("The sink user of it names it.").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("alert").waitFor();
  await page.keyboard.press("Escape");
  await visit(page, "scripts?kind=tool");
  await page.getByRole("link", { name: "greet" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "used" }).count(), 0);
  await checkAccessibility(page, "scripts");

  // MCP clients see the tool.
  await visit(page, "mcp");
  await page.locator("summary", { hasText: "greet" }).waitFor();
  await page.getByRole("button", { name: "Make a token for it" }).click();
  await page.getByRole("dialog").getByText(/svc_/).first().waitFor();
  await checkAccessibility(page, "mcp");
  assert.deepEqual((await get("/api/tokens")).items.find((token) => token.name === "mcp client").scopes, ["mcp"]);
  await page.getByRole("button", { name: "Done" }).click();
  await picture(page, "mcp");
  await page.expectNoFaults();
}
