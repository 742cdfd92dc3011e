// Texts that would run in a careless page, wherever a text of others is shown: nothing runs, and all of it is shown as text.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { base, loaded, logIn, open, visit } from "../browser.mjs";
import { admin, emit, eventually, get, post, receiver, svc } from "../server.mjs";

const CORPUS = [
  `<script>window.hit("script")</script>`,
  `<img src=x onerror=window.hit("img")>`,
  `"><svg onload=window.hit("svg")>`,
  `' onmouseover=window.hit("attribute") autofocus onfocus=window.hit("focus") x='`,
  `</title></style></textarea></script><iframe srcdoc="<script>parent.hit('iframe')</script>">`,
  `javascript:window.hit("url")`,
  `[click](javascript:window.hit("markdown"))`,
  "${window.hit('template')}{{constructor.constructor('window.hit()')()}}",
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.hit(1)&gt;">`,
  `\u202egnp.exe \u0000 &lt;b&gt; <b>bold</b>`,
];
const ALL = CORPUS.join(" | ").replaceAll("\u0000", "");
const LINE = CORPUS.slice(0, 8).join(" | ");

/** A method server whose every answer is an error with such texts. */
const SERVER = `import json, sys
error = {"code": 7, "message": "<img src=x onerror=window.hit(1)>", "data": "<script>window.hit(2)</script>"}
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": error}), flush=True)
`;

const methods = (text, keyword) => `[server]
command = "python3"
args = ["server.py"]
[[methods]]
name = "hostile.call"
local_name = "call"
mcp_tool = true
description = ${text}
keywords = [${keyword}]
events = ["custom.*"]
params_schema = { type = "object", properties = { a = { type = "string", description = ${text}, default = ${text} } } }
`;

/** Elements that only a text of the corpus could have made. */
const FOREIGN = [
  "main img", "iframe", "svg[onload]", "[onerror]", "[onmouseover]", "main script", "main style", "a[href^='javascript:']", "math",
].join(", ");

/** The addresses of the scenario that the server refuses, since they have no pattern and no id, and the browser's line about each. */
const REFUSED = [
  `/api/events?${new URLSearchParams({ pattern: CORPUS[0], limit: 100 })}`, `/api/event-sinks/${encodeURIComponent(CORPUS[1])}`,
];
const LINE_OF_BROWSER = "Failed to load resource: the server responded with a status of 400 (Bad Request)";
const EXPECTED = REFUSED.map((path) => ({ test: (text) => text === `${LINE_OF_BROWSER} ${base}${path}` }));

export default async function hostile(browser) {
  // Everything that takes free text has all of it.
  const payload = Object.fromEntries(CORPUS.map((text, at) => [text.replaceAll("\u0000", ""),
    { at, text: text.replaceAll("\u0000", "") }]));
  await post("/api/event-sinks",
    { name: "echo", owner: "global", description: ALL, events: "custom.*", type: "webhook",
    webhook: { url: receiver("/hostile"), headers: { "X-A": `<img src=x onerror=window.hit("header")>` } } });
  const quoted = JSON.stringify(LINE);
  const script = await post("/api/scripts",
    { name: "hostile", owner: "global", description: ALL, content: `-- ${LINE}\nlog.info(${quoted})\nerror(${quoted})` });
  await post("/api/event-sinks",
    { name: "fails", owner: "global", events: "custom.*", filter: `event.data[${quoted}].x.y == nil`, type: "script",
    script: { script_id: script.id } });
  await post("/api/tokens", { name: `<img src=x onerror=window.hit("token")>` });
  const space = await post("/api/spaces", { name: "hostile", description: ALL, custom: { field: ALL } });
  await fetch(`${base}/api/auth/login`,
    { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name: `<img src=x onerror=window.hit(1)>`, password: LINE }) });
  await post("/api/sources",
    { slug: "hostile", description: ALL, transform: `log.info(${quoted})\nerror(${quoted})`, verify: { type: "none", insecure: true } });
  await fetch(`${base}/in/hostile`,
    { method: "POST", headers: { "Content-Type": "application/json", "X-Note": `<img src=x onerror=window.hit(1)>` },
    body: JSON.stringify({ text: ALL }) });
  const toml = (text) => JSON.stringify(text).replaceAll("\\u202e", "");
  await writeFile(join(process.env.CONSOLE_SCRATCH, "server.py"), SERVER);
  await writeFile(join(process.env.CONSOLE_SCRATCH, "methods.toml"), methods(toml(LINE), toml(CORPUS[1])));
  svc(["agent", "start", "--listen", "127.0.0.1:0", "--data", join(process.env.CONSOLE_SCRATCH, "agent"), "--methods-file",
    "methods.toml"], { SVC_SERVER: base, SVC_AGENT_TOKEN: space.agent_token });
  await eventually("the method to be published", async () => (await get("/api/methods")).methods.length === 1);
  const id = await emit("hostile", payload);
  await eventually("the deliveries to fail",
    async () => (await get(`/api/events/${id}`)).deliveries.filter((delivery) => delivery.state === "dead").length === 3);

  const page = await open(browser, { expected: EXPECTED });
  const hits = [];
  await page.context().exposeFunction("hit", (where) => hits.push(where));
  await logIn(page, admin.name, admin.password);
  const sinks = (await get("/api/event-sinks")).items;
  const [source] = (await get("/api/sources")).items;
  const views = [
    "overview", "events", `events?text=${encodeURIComponent(CORPUS[1])}`, `events?pattern=${encodeURIComponent(CORPUS[0])}`,
      `events/${id}`, "sinks", "sinks?tab=methods",
    ...sinks.flatMap((sink) => ["", "?tab=edit", "?tab=letters", "?tab=secret"].map((tab) => `sinks/${sink.id}${tab}`)), "sources",
      `sources/${source.id}`,
    `sources/${source.id}?tab=edit`, `sources/${source.id}?tab=letters`, "spaces", `spaces/${space.id}`, "methods",
      "methods/hostile.call", "scripts", `scripts/${script.id}`,
    "mcp", "tokens", "users", "roles", "groups", "audit", "account", `nothing/${encodeURIComponent(CORPUS[1])}`,
      `sinks/${encodeURIComponent(CORPUS[1])}`, `users?q=${encodeURIComponent(CORPUS[2])}`,
  ];
  // Whatever else goes wrong, a text that has run is the failure to tell.
  try {
    for (const path of views) {
      await visit(page, path);
      await loaded(page);
      await openAll(page);
      await loaded(page);
      await checkUntouched(page, path);
      assert.deepEqual(hits, [], path);
    }
    // A call whose answer is an error, the tail, and the search.
    await visit(page, "methods/hostile.call");
    await page.getByRole("button", { name: "Call" }).click();
    await page.getByLabel("Error", { exact: true }).getByText("onerror").waitFor();
    await visit(page, "events?tab=live");
    await page.getByText("connected").waitFor();
    await emit("hostile", payload);
    await page.getByRole("log").getByText("custom.hostile").waitFor();
    await checkUntouched(page, "the live tail");
    await page.locator("#main").focus();
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByLabel("Search views, sinks, methods and spaces").fill("hostile");
    await page.getByRole("list", { name: "Results" }).getByRole("link", { name: /hostile\.call/ }).waitFor();
    await checkUntouched(page, "the search");
    await page.keyboard.press("Escape");
    // It is shown as it is.
    await visit(page, `events/${id}`);
    await page.getByLabel("Payload", { exact: true }).getByText(`<img src=x onerror=window.hit(`).first().waitFor();
  } finally {
    assert.deepEqual(hits, []);
  }
  await page.expectNoFaults();
}

/** Opens everything that can be opened on the page, also what comes with it. */
async function openAll(page) {
  const closed = page.locator("main details:not([open]) > summary");
  while ((await closed.count()) > 0) {
    const before = await closed.count();
    await closed.first().click();
    await eventually("the part to open", async () => (await closed.count()) !== before);
    await loaded(page);
  }
}

/** No element of the corpus became one of the page. */
async function checkUntouched(page, path) {
  const look = (selector) => [...document.querySelectorAll(selector)].map((element) => element.outerHTML.slice(0, 100));
  const found = await page.evaluate(look, FOREIGN);
  assert.deepEqual(found, [], path);
}
