// Groups: sets of users that shared methods can be limited to.

import { html, useEffect, useState } from "../core/html.js";
import { all, del, get, patch, post } from "../core/api.js";
import { may } from "../core/session.js";
import { bindKey } from "../core/keyboard.js";
import { to } from "../core/router.js";
import { useAction, useResource } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, CutNote, Empty, ErrorBox, Freshness, Heading, Time } from "../parts/basics.js";
import { Confirm, Dialog, FormActions } from "../parts/dialogs.js";
import { errorOf, Text } from "../parts/forms.js";
import { Table } from "../parts/table.js";

/** Names that a sentence lists at most. */
const NAMED = 8;

export default function Groups() {
  const list = useResource(() => all("/api/groups"), []);
  const [edited, setEdited] = useState(null);
  const [deleted, setDeleted] = useState(null);
  useEffect(() => bindKey("n", () => setEdited({})), []);
  const create = html`<${Button} kind="primary" icon="plus" onClick=${() => setEdited({})}>New group<//>`;
  const remove = async () => {
    await del(`/api/groups/${deleted.id}`, { force: true });
    announce(`The group ${deleted.name} is deleted.`);
    await list.reload();
  };
  const columns = [
    { name: "Name", width: "minmax(0, 2fr)", cell: (group) => html`<${GroupName} group=${group} />` },
    { name: "Made", width: "200px", secondary: true, cell: (group) => html`<${Time} at=${group.created_at} mode="date" />` },
    {
      name: "", width: "210px", align: "right",
      cell: (group) => html`<${GroupActions} group=${group} onRename=${setEdited} onDelete=${setDeleted} />`,
    },
  ];
  return html`<${Heading} title="Groups">${create}<//>
    <${Freshness} list=${list} />
    <${CutNote} items=${list.data}>Those beyond are not shown here; <code>svc group list</code> has all.<//>
    ${list.data?.length === 0 && !list.error ? html`<${Empty} title="No groups yet" action=${create}>
      A shared method can be limited to groups. Put users into them under Users.
    <//>` : html`<${Table} label="Groups" items=${list.data ?? []} list=${list} isLoading=${list.isLoading && !list.data}
      columns=${columns} />`}
    ${edited && html`<${GroupDialog} group=${edited} onClose=${() => setEdited(null)} onSaved=${list.reload} />`}
    ${deleted && html`<${Confirm} title=${`Delete the group ${deleted.name}?`} consequences=${() => consequences(deleted)}
      action=${remove} onClose=${() => setDeleted(null)} />`}`;
}

function GroupName({ group }) {
  if (!may("manage_users")) return html`<strong>${group.name}</strong>`;
  return html`<a class="row-link" href=${to("users", { group: group.id })}>${group.name}</a>`;
}

function GroupActions({ group, onRename, onDelete }) {
  return html`<${Button} kind="quiet" onClick=${() => onRename(group)} aria-label=${`Rename ${group.name}`}>Rename<//>
    <${Button} kind="quiet" icon="trash" onClick=${() => onDelete(group)} aria-label=${`Delete ${group.name}`}>Delete<//>`;
}

async function consequences(group) {
  const [users, { methods }] = await Promise.all([may("manage_users") ? all("/api/users") : [], get("/api/methods")]);
  const isOf = (record) => record.groups.some((has) => has.id === group.id);
  const names = (records) => `${records.slice(0, NAMED).map((one) => one.name).join(", ")}${records.length > NAMED ? " and more" : ""}`;
  const [members, limited] = [users.filter(isOf), methods.filter(isOf)];
  return [
    members.length > 0 ? `${count(members.length, "member")}: ${names(members)}.` : "It has no members that you see.",
    limited.length > 0 ? `Its members no longer see ${names(limited)}.`
      : "Methods that are limited to it are no longer seen by its members.",
  ];
}

function GroupDialog({ group, onClose, onSaved }) {
  const [name, setName] = useState(group.name ?? "");
  const { isBusy, error, run } = useAction();
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      if (group.id) await patch(`/api/groups/${group.id}`, { name: name.trim() });
      else await post("/api/groups", { name: name.trim() });
      announce("Saved.");
      onClose();
      await onSaved();
    });
  };
  return html`<${Dialog} title=${group.id ? `Rename ${group.name}` : "New group"} onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      <${Text} label="Name" value=${name} onInput=${setName} required error=${errorOf(error, "name")} />
      <${ErrorBox} error=${error} />
      <${FormActions} onClose=${onClose} isBusy=${isBusy}>Save<//>
    </form>
  <//>`;
}
