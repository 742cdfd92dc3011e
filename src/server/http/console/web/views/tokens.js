// The user's API tokens: making one, which is shown once, and deleting them.

import { html, useEffect, useState } from "../core/html.js";
import { del, get, post } from "../core/api.js";
import { bindKey } from "../core/keyboard.js";
import { useAction, useList } from "../core/resource.js";
import { fromLocalInput, relative } from "../core/format.js";
import { announce, Button, Empty, ErrorBox, Heading, State, Time } from "../parts/basics.js";
import { Confirm, Dialog, SecretOnce } from "../parts/dialogs.js";
import { Checks, Field, Text } from "../parts/forms.js";
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
  return html`<${Heading} title="Tokens" subtitle="For programs that call the API as you">${create}<//>
    ${list.items.length === 0 && list.isComplete && !list.error
      ? html`<${Empty} title="No tokens yet"
      action=${create}>A program sends one as <code>Authorization: Bearer svc_…</code>. Scopes limit what it reaches.<//>`
      : html`<${TokenTable} list=${list} onDelete=${setDeleted} />`}
    ${isMaking && html`<${NewToken} onClose=${() => setMaking(false)} onMade=${list.reload} />`}
    ${deleted && html`<${Confirm} title=${`Delete the token ${deleted.name}?`} consequences=${() => consequences(deleted)}
      action=${remove} onClose=${() => setDeleted(null)} />`}`;
}

async function consequences({ id }) {
  const token = await get(`/api/tokens/${id}`);
  const used = token.last_used_at ? `It was last used ${relative(token.last_used_at)}.` : "It was never used.";
  return ["Programs that use it are refused from then on.", used];
}

export function TokenTable({ list, onDelete }) {
  const isExpired = (token) => token.expires_at && Date.parse(token.expires_at) < Date.now();
  return html`<${Table} label="Tokens" items=${list.items} more=${list.more} isLoading=${list.isLoading} list=${list}
    columns=${[
      { name: "Name", width: "minmax(0, 2fr)", cell: (token) => html`<strong>${token.name}</strong>` },
      { name: "Reaches", width: "minmax(0, 1fr)", cell: (token) => (token.scopes.length ? token.scopes.join(", ") : "everything you may") },
      { name: "Last used", width: "130px", secondary: true,
        cell: (token) => (token.last_used_at ? html`<${Time} at=${token.last_used_at} mode="relative" />`
        : html`<span class="muted">never</span>`) },
      { name: "Expires", width: "180px", secondary: true,
        cell: (token) => (isExpired(token) ? html`<${State} value="expired" />` : token.expires_at
        ? html`<${Time} at=${token.expires_at} mode="date" />` : html`<span class="muted">never</span>`) },
      { name: "Made", width: "180px", tone: "hide-on-phone", cell: (token) => html`<${Time} at=${token.created_at} mode="date" />` },
      { name: "", width: "90px", align: "right",
        cell: (token) => html`<${Button} kind="quiet" icon="trash" onClick=${() => onDelete(token)}
        aria-label=${`Delete ${token.name}`}>Delete<//>` },
    ]} />`;
}

function NewToken({ onClose, onMade }) {
  const [draft, setDraft] = useState({ name: "", scopes: [], expires: "" });
  const [issued, setIssued] = useState(null);
  const { isBusy, error, run } = useAction();
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
    <${Text} label="Name" hint="What it is for." value=${draft.name} onInput=${(name) => setDraft({ ...draft, name })} required />
    <${Checks} legend="Scopes" hint="None: everything that you may do." value=${draft.scopes}
      onInput=${(scopes) => setDraft({ ...draft, scopes })} options=${SCOPES} />
    <${Field} label="Expires" hint="Empty: never.">
      ${(bound) => html`<input type="datetime-local" value=${draft.expires}
      onInput=${(event) => setDraft({ ...draft, expires: event.target.value })} ...${bound} />`}<//>
    <${ErrorBox} error=${error} />
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//>
      <${Button} type="submit" kind="primary" busy=${isBusy}>Make the token<//></div>
  </form><//>`;
}
