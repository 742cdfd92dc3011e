// Editing: a recorded event as the sample of any editor, completion of what is in scope, which is what the server has, errors of text
// templates, and the question before unsaved changes are left.

import assert from "node:assert/strict";
import { checkAccessibility, loaded, logIn, open, visit, write } from "../browser.mjs";
import { admin, api, emit, eventually, get, post, receiver } from "../server.mjs";

export default async function editing(browser) {
  const webhook = { url: receiver("/echo"), template: { lang: "lua", source: "return { text = event.type }" } };
  const sink = await post("/api/event-sinks", { name: "chat", owner: "global", events: "custom.*", type: "webhook", webhook });
  const script = await post("/api/scripts", { name: "greet", content: "log.info(event.type)" });
  const sample = await emit("deploy.done", { version: "9.9", build: { number: 7 } });
  const page = await open(browser, { expected: [/400/] });
  await logIn(page, admin.name, admin.password);
  await samples(page, { sink, script, sample });
  await completion(page, { sink, sample });
  await leaving(page, { sink });
  await scopes(page);
  await page.expectNoFaults();
}

/** An event becomes the sample of a sink, a script, or a new one of either. */
async function samples(page, { sink, script, sample }) {
  const use = async () => {
    await visit(page, `events/${sample}`);
    await page.getByRole("button", { name: "Use as sample" }).click();
    await page.getByRole("dialog").getByRole("heading", { name: "Use as sample" }).waitFor();
  };
  const isSample = async () => {
    await page.waitForURL((url) => url.hash.includes(`sample=${sample}`));
    await eventually("the sample to be chosen", async () => (await page.getByLabel("Or its id").inputValue().catch(() => "")) === sample);
  };
  await use();
  await page.getByRole("combobox", { name: "A sink" }).fill("cha");
  await page.getByRole("option", { name: /^chat/ }).waitFor();
  await checkAccessibility(page, "use as sample");
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.hash.startsWith(`#/sinks/${sink.id}?tab=edit`));
  await isSample();
  const body = page.getByLabel("Body that would be sent", { exact: true });
  await eventually("the preview of the sample", async () => (await body.innerText().catch(() => "")).includes("custom.deploy.done"));
  await use();
  await page.getByRole("combobox", { name: "A stored script" }).fill("gre");
  await page.getByRole("option", { name: /^greet/ }).click();
  await page.waitForURL((url) => url.hash.startsWith(`#/scripts/${script.id}`));
  await isSample();
  await use();
  await page.getByRole("link", { name: "New sink" }).click();
  await page.getByRole("heading", { name: "New sink" }).waitFor();
  await isSample();
  await use();
  await page.getByRole("link", { name: "New script" }).click();
  await page.getByRole("heading", { name: "New script" }).waitFor();
  await isSample();
}

/** Types at the end of an editor and waits for the options of the completion. */
async function completes(page, label, text, option) {
  await write(page, label, text);
  await page.keyboard.press("Control+Space");
  await page.getByRole("option", { name: option }).first().waitFor();
  await page.keyboard.press("Escape");
}

async function completion(page, { sink, sample }) {
  await visit(page, `sinks/${sink.id}?tab=edit&sample=${sample}`);
  await loaded(page);
  await page.getByText("Payload", { exact: true }).first().waitFor();
  await completes(page, "Template of the body", "return event.data.", /^version/);
  await completes(page, "Template of the body", "return event.data.build.", /^number/);
  await completes(page, "Template of the body", 'local e = require "svc.event"\nreturn e.', /^get_string/);
  await completes(page, "Filter, a Lua expression", "event.data.build.", /^number/);

  // Text with Lua in it: completion inside of the braces, and errors on their line.
  await page.getByLabel("Text with ${{ Lua }}").check();
  await completes(page, "Template of the body", "version\n${{ event.data.", /^version/);
  await write(page, "Template of the body", "first\n${{ event.type .. }}");
  await page.getByText(/^Line 2:/).waitFor();
  await page.locator(".cm-lintRange-error").first().waitFor();
  await write(page, "Template of the body", "first\n${{ event.type }}");
  await page.getByText(/^Line 2:/).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Undo the changes" }).click();
}

/** Changes that are not saved: leaving asks once, for links, keys and the back button alike. */
async function leaving(page, { sink }) {
  await visit(page, "sinks");
  await page.getByRole("link", { name: "chat" }).click();
  await page.getByRole("link", { name: "Definition" }).click();
  await page.getByLabel("Description").fill("unsaved");
  const question = page.getByRole("dialog").getByText("is not saved, and will be lost");
  const here = (url) => url.hash === `#/sinks/${sink.id}?tab=edit`;
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Events" }).click();
  await question.waitFor();
  await checkAccessibility(page, "leaving");
  await page.getByRole("button", { name: "Stay" }).click();
  await page.waitForURL(here);
  assert.equal(await page.getByLabel("Description").inputValue(), "unsaved");
  await page.goBack();
  await question.waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL(here);
  assert.equal(await page.getByLabel("Description").inputValue(), "unsaved");
  await page.locator("#main").focus();
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await question.waitFor();
  await page.getByRole("button", { name: "Leave" }).click();
  await page.getByRole("heading", { name: "Events", level: 1 }).waitFor();
  assert.equal((await get(`/api/event-sinks/${sink.id}`)).description, "");

  // The way back is as it was, and a saved form asks nothing.
  await page.goBack();
  await page.waitForURL(here);
  await page.getByLabel("Description").fill("saved");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Roles" }).click();
  await page.getByRole("heading", { name: "Roles", level: 1 }).waitFor();
  assert.equal((await get(`/api/event-sinks/${sink.id}`)).description, "saved");
}

/** A program that returns all globals with the members of those that are tables. */
const GLOBALS = `local found = {}
for name, value in pairs(_G) do
  local members = {}
  if type(value) == "table" and name ~= "_G" then
    for member in pairs(value) do table.insert(members, member) end
    table.sort(members)
  end
  found[name] = json.array(members)
end
`;

/** The names that completion offers in each place are those that the server's Lua has there. */
async function scopes(page) {
  const offered = (place) => page.evaluate(async (place) => {
    const module = [...document.querySelectorAll("script[type=module]")].map((script) => new URL("core/lua_scope.js", script.src).href)[0];
    const { luaModules, luaScope } = await import(module);
    const members = (table) => Object.keys(table ?? {}).sort();
    const scope = Object.entries(luaScope(place, {})).map(([name, { members: inner }]) => [name, members(inner)]);
    return { scope: Object.fromEntries(scope), module: members(luaModules(place)["svc.event"]) };
  }, place);
  /** Compares the names of a place with its globals and the variables of its run. */
  const compare = async (place, { globals, variables, module }) => {
    const { scope, module: offeredModule } = await offered(place);
    const known = Object.fromEntries(Object.entries(scope).filter(([name]) => !variables.includes(name)));
    assert.deepEqual(known, globals, `the globals of a ${place}`);
    assert.deepEqual(Object.keys(scope).filter((name) => !(name in globals)).sort(), [...variables].sort(), `the variables of a ${place}`);
    if (module) assert.deepEqual(offeredModule, module, `svc.event of a ${place}`);
  };
  const run = async (kind, content, body) => {
    const { id } = await post("/api/scripts", { name: `scope-${kind}`, kind, content });
    const result = await post(`/api/scripts/${id}/run`, body);
    await api("DELETE", `/api/scripts/${id}`);
    return result;
  };
  const MODULE = `local module = {} for name in pairs(require "svc.event") do table.insert(module, name) end table.sort(module)\n`;
  const variables = "{ event ~= nil, space ~= nil, actor ~= nil, custom ~= nil }";
  const telling = `log.info(json.encode({ globals = found, module = module, variables = ${variables} }))`;
  const ran = await run("script", `${GLOBALS}${MODULE}${telling}`, {});
  assert.equal(ran.error, undefined, JSON.stringify(ran));
  const inScript = JSON.parse(ran.log[0].slice(ran.log[0].indexOf("{")));
  assert.deepEqual(inScript.variables, [true, true, true, true]);
  await compare("script", { globals: inScript.globals, module: inScript.module, variables: ["event", "space", "actor", "custom"] });
  const { result } = await run("tool", `${GLOBALS}return found`, { params: {} });
  await compare("tool", { globals: result, variables: ["params"] });

  const preview = async (source) => {
    const sink = { name: "scope", events: "*", type: "webhook",
      webhook: { url: "https://example.com", template: { lang: "lua", source } } };
    return JSON.parse((await post("/api/event-sinks/preview", { sink })).body);
  };
  const inTemplate = await preview(`${GLOBALS}${MODULE}return { globals = found, module = module }`);
  await compare("template", { ...inTemplate, variables: ["event", "space", "actor", "custom"] });
  const FIELDS = "local fields = {} for name in pairs(event) do table.insert(fields, name) end\n";
  const { fields } = await preview(`${FIELDS}return { fields = fields }`);
  const { scope } = await offered("template");
  for (const field of fields) assert.ok(scope.event.includes(field), `event.${field}`);

  const transform = `${GLOBALS}return { type = "scope", payload = { globals = found, request = request ~= nil, source = source.slug } }`;
  const source = await post("/api/sources", { slug: "scope", verify: { type: "none", insecure: true }, transform });
  const tried = await post(`/api/sources/${source.id}/test`, { headers: {}, body: "{}" });
  assert.equal(tried.error, undefined, JSON.stringify(tried));
  const payload = tried.events[0].payload;
  assert.deepEqual([payload.request, payload.source], [true, "scope"]);
  await compare("transform", { globals: payload.globals, variables: ["request", "source"] });

  // A filter returns nothing but true or false: every name that is offered is there.
  const { scope: inFilter } = await offered("filter");
  const names = Object.keys(inFilter).map((name) => `${name} ~= nil`).join(" and ");
  await post("/api/event-sinks", { name: "scope", events: "custom.scope", filter: names, type: "script", script: { source: "return" } });
  const { sinks } = await post("/api/events/explain", { type: "scope", payload: {} });
  assert.deepEqual(sinks.filter((one) => one.name === "scope").map((one) => one.matches), [true], names);
}
