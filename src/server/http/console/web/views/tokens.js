// The user's API tokens: making one, which is shown once, and deleting them.

import { html, useEffect, useState } from "../core/html.js";
import { del, get, post } from "../core/api.js";
import { bindKey } from "../core/keyboard.js";
import { useAction, useList } from "../core/resource.js";
import { fromLocalInput, relative } from "../core/format.js";
import { announce, Button, Empty, ErrorBox, Heading, State, Time } from "../parts/basics.js";
import { Confirm, Dialog, FormActions, SecretOnce } from "../parts/dialogs.js";
import { Checks, Text, TimeField } from "../parts/forms.js";
import { Table } from "../parts/table.js";

const SCOPES = [["methods", "methods: list and call methods"], ["mcp", "mcp: the MCP endpoint"]];

export default function Tokens() {
  const list = useList("/api/tokens", {}, { limit: 200 });
  const [isMaking, setMaking] = useState(false);
  const [deleted, setDeleted] = useState(null);
  useEffect(() => bindKey("n", () => setMaking(true)), []);
  const create = html`<${Button} kind="primary" icon="plus" onClick=${() => setMaking(true)}>New token<//>`;
  const remove = async () => {
    await del(`/api/tokens/${deleted.id}`);
    announce(`The token ${deleted.name} is deleted.`);
    await list.reload();
  };
  const isEmpty = list.items.length === 0 && list.isComplete && !list.error;
  return html`<${Heading} title="Tokens" subtitle="For programs that call the API as you">${create}<//>
    ${isEmpty ? html`<${Empty} title="No tokens yet" action=${create}>
      A program sends one as <code>Authorization: Bearer svc_…</code>. Scopes limit what it reaches.
    <//>` : html`<${TokenTable} list=${list} onDelete=${setDeleted} />`}
    ${isMaking && html`<${NewToken} onClose=${() => setMaking(false)} onMade=${list.reload} />`}
    ${deleted && html`<${Confirm} title=${`Delete the token ${deleted.name}?`} consequences=${() => consequences(deleted)}
      action=${remove} onClose=${() => setDeleted(null)} />`}`;
}

async function consequences({ id }) {
  const token = await get(`/api/tokens/${id}`);
  const used = token.last_used_at ? `It was last used ${relative(token.last_used_at)}.` : "It was never used.";
  return ["Programs that use it are refused from then on.", used];
}

function Never() {
  return html`<span class="muted">never</span>`;
}

function LastUsed({ token }) {
  return token.last_used_at ? html`<${Time} at=${token.last_used_at} mode="relative" />` : html`<${Never} />`;
}

function Expiry({ token }) {
  if (!token.expires_at) return html`<${Never} />`;
  const isOver = Date.parse(token.expires_at) < Date.now();
  return isOver ? html`<${State} value="expired" />` : html`<${Time} at=${token.expires_at} mode="date" />`;
}

function DeleteToken({ token, onDelete }) {
  return html`<${Button} kind="quiet" icon="trash" onClick=${() => onDelete(token)} aria-label=${`Delete ${token.name}`}>Delete<//>`;
}

export function TokenTable({ list, onDelete }) {
  const columns = [
    { name: "Name", width: "minmax(0, 2fr)", cell: (token) => html`<strong>${token.name}</strong>` },
    { name: "Reaches", width: "minmax(0, 1fr)", cell: (token) => token.scopes.join(", ") || "everything you may" },
    { name: "Last used", width: "130px", secondary: true, cell: (token) => html`<${LastUsed} token=${token} />` },
    { name: "Expires", width: "180px", secondary: true, cell: (token) => html`<${Expiry} token=${token} />` },
    { name: "Made", width: "180px", tone: "hide-on-phone", cell: (token) => html`<${Time} at=${token.created_at} mode="date" />` },
    onDelete && { name: "", width: "90px", align: "right", cell: (token) => html`<${DeleteToken} token=${token} onDelete=${onDelete} />` },
  ].filter(Boolean);
  return html`<${Table} label="Tokens" items=${list.items} list=${list} more=${list.more} isLoading=${list.isLoading}
    columns=${columns} />`;
}

function NewToken({ onClose, onMade }) {
  const [draft, setDraft] = useState({ name: "", scopes: [], expires: "" });
  const [issued, setIssued] = useState(null);
  const { isBusy, error, run } = useAction();
  const set = (field) => (value) => setDraft((before) => ({ ...before, [field]: value }));
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      const body = { name: draft.name.trim(), scopes: draft.scopes };
      if (draft.expires) body.expires_at = fromLocalInput(draft.expires);
      setIssued(await post("/api/tokens", body));
      await onMade();
    });
  };
  if (issued) return html`<${SecretOnce} title=${`The token ${issued.name}`} secret=${issued.token} onClose=${onClose} />`;
  return html`<${Dialog} title="New token" onClose=${onClose}><form class="form" onSubmit=${submit}>
    <${Text} label="Name" hint="What it is for." value=${draft.name} onInput=${set("name")} required />
    <${Checks} legend="Scopes" hint="None: everything that you may do." value=${draft.scopes} onInput=${set("scopes")} options=${SCOPES} />
    <${TimeField} label="Expires" hint="Empty: never." value=${draft.expires} onInput=${set("expires")} />
    <${ErrorBox} error=${error} />
    <${FormActions} onClose=${onClose} isBusy=${isBusy}>Make the token<//>
  </form><//>`;
}
