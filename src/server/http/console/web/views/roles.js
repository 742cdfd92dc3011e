// Roles: named sets of permissions.

import { html, useEffect, useState } from "../core/html.js";
import { all, del, patch, post } from "../core/api.js";
import { may, user } from "../core/session.js";
import { bindKey } from "../core/keyboard.js";
import { to } from "../core/router.js";
import { useAction, useResource } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, ErrorBox, Freshness, Heading, ListError, Loading } from "../parts/basics.js";
import { Confirm, Dialog, FormActions } from "../parts/dialogs.js";
import { Checks, errorOf, Text } from "../parts/forms.js";

const PERMISSIONS = [
  ["use_spaces", "Use spaces and raise events"],
  ["manage_spaces", "Manage all spaces"],
  ["use_methods", "Call methods"],
  ["use_mcp_server", "Use MCP"],
  ["manage_own_event_sinks", "Manage own sinks"],
  ["manage_global_event_sinks", "Manage global sinks"],
  ["manage_own_scripts", "Manage own scripts"],
  ["manage_global_scripts", "Manage global scripts"],
  ["manage_users", "Manage users"],
  ["manage_groups", "Manage groups"],
  ["manage_roles", "Manage roles"],
  ["view_audit_log", "View the audit log"],
];

/** Names that a sentence lists at most. */
const NAMED = 8;

export default function Roles() {
  const list = useResource(() => all("/api/roles"), []);
  const [edited, setEdited] = useState(null);
  const [deleted, setDeleted] = useState(null);
  useEffect(() => bindKey("n", () => setEdited({})), []);
  const remove = async () => {
    await del(`/api/roles/${deleted.id}`);
    announce(`The role ${deleted.name} is deleted.`);
    await list.reload();
  };
  return html`<${Heading} title="Roles"><${Button} kind="primary" icon="plus" onClick=${() => setEdited({})}>New role<//><//>
    <${Freshness} list=${list} />
    ${list.isLoading && !list.data && html`<${Loading} />`}
    <${ListError} error=${list.error} retry=${list.reload} loadedAt=${list.loadedAt} />
    <div class="stack">
      ${(list.data ?? []).map((role) => html`<${Role} key=${role.id} role=${role} onEdit=${setEdited} onDelete=${setDeleted} />`)}
    </div>
    ${edited && html`<${RoleDialog} role=${edited} onClose=${() => setEdited(null)} onSaved=${list.reload} />`}
    ${deleted && html`<${Confirm} title=${`Delete the role ${deleted.name}?`} consequences=${() => consequences(deleted)}
      action=${remove} onClose=${() => setDeleted(null)} />`}`;
}

function Role({ role, onEdit, onDelete }) {
  return html`<section class="panel">
    <div class="panel-head"><h2>${role.name}</h2>
      <div class="actions">
        ${may("manage_users") && html`<a class="button quiet" href=${to("users", { role: role.id })}>Users</a>`}
        <${Button} onClick=${() => onEdit(role)} aria-label=${`Change ${role.name}`}>Change<//>
        <${Button} icon="trash" onClick=${() => onDelete(role)} aria-label=${`Delete ${role.name}`}>Delete<//>
      </div>
    </div>
    <div class="tags">${role.permissions.map((permission) => html`<span class="tag" key=${permission}>${permission}</span>`)}</div>
  </section>`;
}

async function consequences(role) {
  if (!may("manage_users")) return ["Every user who has it loses its permissions."];
  const users = (await all("/api/users")).filter((one) => one.roles.some((has) => has.id === role.id));
  if (users.length === 0) return ["No user has it."];
  const names = users.slice(0, NAMED).map((one) => one.name).join(", ");
  return [`${count(users.length, "user")} will lose it: ${names}${users.length > NAMED ? " and more" : ""}.`];
}

function RoleDialog({ role, onClose, onSaved }) {
  const [draft, setDraft] = useState({ name: role.name ?? "", permissions: role.permissions ?? [] });
  const { isBusy, error, run } = useAction();
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      if (role.id) await patch(`/api/roles/${role.id}`, draft);
      else await post("/api/roles", draft);
      announce("Saved.");
      onClose();
      await onSaved();
    });
  };
  // A permission that the user lacks can be taken away, and not given.
  const isOffered = ([permission]) => user.value.permissions.includes(permission) || draft.permissions.includes(permission);
  return html`<${Dialog} title=${role.id ? `The role ${role.name}` : "New role"} onClose=${onClose} wide>
    <form class="form" onSubmit=${submit}>
      <${Text} label="Name" value=${draft.name} onInput=${(name) => setDraft({ ...draft, name })} required
        error=${errorOf(error, "name")} />
      <${Checks} legend="Permissions" value=${draft.permissions} onInput=${(permissions) => setDraft({ ...draft, permissions })}
        options=${PERMISSIONS.filter(isOffered)} />
      <${ErrorBox} error=${error} />
      <${FormActions} onClose=${onClose} isBusy=${isBusy}>Save<//>
    </form>
  <//>`;
}
