// MCP: the tools that this user's clients see, and the settings to paste into them.

import { html, useState } from "../core/html.js";
import { ApiError, post, sendForText } from "../core/api.js";
import { managesScripts } from "../core/session.js";
import { to } from "../core/router.js";
import { useAction, useResource } from "../core/resource.js";
import { Block, Button, Code, Empty, ErrorBox, Heading, Loading } from "../parts/basics.js";
import { Select, Text } from "../parts/forms.js";
import { SecretOnce } from "../parts/dialogs.js";
import { pretty } from "../core/format.js";

const VERSION = "2025-06-18";

/** Asks for the tools as a client would. */
async function listTools() {
  const tools = [];
  let cursor;
  do {
    const { tools: page, nextCursor } = await ask("tools/list", cursor ? { cursor } : {});
    tools.push(...page);
    cursor = nextCursor;
  } while (cursor);
  return tools;
}

async function ask(method, params) {
  const headers = { Accept: "application/json, text/event-stream", "MCP-Protocol-Version": VERSION };
  const text = await sendForText("POST", "/mcp", { jsonrpc: "2.0", id: 1, method, params }, { headers });
  const line = text.split("\n").find((line) => line.startsWith("data:"));
  const answer = JSON.parse(line ? line.slice(5) : text);
  if (answer.error) throw new ApiError(200, "mcp", answer.error.message);
  return answer.result;
}

const endpoint = `${location.origin}/mcp`;
const withHeader = (token) => ({ type: "http", url: endpoint, headers: { Authorization: `Bearer ${token}` } });
const CLIENTS = {
  "Claude Code": (token) => `claude mcp add --transport http svc ${endpoint} --header "Authorization: Bearer ${token}"`,
  "Cursor (.cursor/mcp.json)": (token) => pretty({ mcpServers: { svc: { url: endpoint, headers: { Authorization: `Bearer ${token}` } } } }),
  "VS Code (.vscode/mcp.json)": (token) => pretty({ servers: { svc: withHeader(token) } }),
  "Gemini CLI (settings.json)": (token) => pretty({ mcpServers: { svc: { httpUrl: endpoint,
    headers: { Authorization: `Bearer ${token}` } } } }),
  "Other clients": (token) => pretty({ mcpServers: { svc: withHeader(token) } }),
};

export default function Mcp() {
  const tools = useResource(listTools, []);
  return html`<${Heading} title="MCP" subtitle=${html`Clients reach it at <${Code} text=${endpoint} label="Copy the address" />`} />
    <div class="columns">
      <section class="panel"><h2>Tools that your clients see</h2>
        ${tools.isLoading && html`<${Loading} />`}<${ErrorBox} error=${tools.error} retry=${tools.reload} />
        ${tools.data?.length === 0 && html`<${Empty} title="No tools yet">
          Methods with <code>mcp_tool</code> and stored scripts of kind tool appear here.${" "}
          ${managesScripts.value && html`<a href=${to("scripts", "new")}>Write a tool</a>`}
        <//>`}
        ${tools.data?.map((tool) => html`<${Tool} key=${tool.name} tool=${tool} />`)}
      </section>
      <${Settings} />
    </div>`;
}

function Tool({ tool }) {
  return html`<details class="attempt"><summary><code>${tool.name}</code><span class="muted">${tool.description}</span></summary>
    <div class="attempt-body"><${Block} text=${pretty(tool.inputSchema ?? {})} label=${`Schema of ${tool.name}`} /></div>
  </details>`;
}

function Settings() {
  const [client, setClient] = useState(Object.keys(CLIENTS)[0]);
  const [name, setName] = useState("mcp client");
  const [token, setToken] = useState(null);
  const { isBusy, error, run } = useAction();
  const make = () => run(async () => setToken((await post("/api/tokens", { name, scopes: ["mcp"] })).token));
  const settings = (secret) => CLIENTS[client](secret);
  return html`<section class="panel form"><h2>Settings to paste</h2>
    <${Select} label="Client" value=${client} onInput=${setClient} options=${Object.keys(CLIENTS)} />
    <${Block} text=${settings("YOUR_TOKEN")} label="Settings of the client" />
    <p class="muted">A token of scope mcp reaches /mcp and nothing else.</p>
    <${Text} label="Name of the token" value=${name} onInput=${setName} />
    <${ErrorBox} error=${error} />
    <div class="form-actions"><${Button} kind="primary" busy=${isBusy} onClick=${make}>Make a token for it<//></div>
    ${token && html`<${SecretOnce} title="The token" secret=${token} onClose=${() => setToken(null)}>
      <h3 class="spaced">${client}</h3><${Block} text=${settings(token)} label="Settings with the token" />
    <//>`}
  </section>`;
}
