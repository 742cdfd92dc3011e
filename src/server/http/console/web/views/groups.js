// Groups: sets of users that shared methods can be limited to.

import { html, useEffect, useState } from "../core/html.js";
import { all, del, get, patch, post } from "../core/api.js";
import { may } from "../core/session.js";
import { bindKey } from "../core/keyboard.js";
import { to } from "../core/router.js";
import { useAction, useResource } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, Empty, ErrorBox, Heading, Time } from "../parts/basics.js";
import { Confirm, Dialog } from "../parts/dialogs.js";
import { errorOf, Text } from "../parts/forms.js";
import { Table } from "../parts/table.js";

export default function Groups() {
  const list = useResource(() => all("/api/groups", {}, 10_000), []);
  const [edited, setEdited] = useState(null);
  const [deleted, setDeleted] = useState(null);
  useEffect(() => bindKey("n", () => setEdited({})), []);
  const create = html`<${Button} kind="primary" icon="plus" onClick=${() => setEdited({})}>New group<//>`;
  const remove = async () => {
    await del(`/api/groups/${deleted.id}`, { force: true });
    announce(`The group ${deleted.name} is deleted.`);
    await list.reload();
  };
  return html`<${Heading} title="Groups">${create}<//>
    ${list.data?.length === 0
      ? html`<${Empty} title="No groups yet"
      action=${create}>A shared method can be limited to groups. Put users into them under Users.<//>`
      : html`<${Table} label="Groups" items=${list.data ?? []} isLoading=${list.isLoading && !list.data} list=${list}
      columns=${[
        { name: "Name", width: "minmax(0, 2fr)",
          cell: (group) => (may("manage_users") ? html`<a class="row-link" href=${to("users", { group: group.id })}>${group.name}</a>`
          : html`<strong>${group.name}</strong>`) },
        { name: "Made", width: "200px", secondary: true, cell: (group) => html`<${Time} at=${group.created_at} mode="date" />` },
        { name: "", width: "210px", align: "right",
          cell: (group) => html`<${Button} kind="quiet" onClick=${() => setEdited(group)} aria-label=${`Rename ${group.name}`}>Rename<//>
          <${Button} kind="quiet" icon="trash" onClick=${() => setDeleted(group)} aria-label=${`Delete ${group.name}`}>Delete<//>` },
      ]} />`}
    ${edited && html`<${GroupDialog} group=${edited} onClose=${() => setEdited(null)} onSaved=${list.reload} />`}
    ${deleted && html`<${Confirm} title=${`Delete the group ${deleted.name}?`} consequences=${() => consequences(deleted)}
      action=${remove} onClose=${() => setDeleted(null)} />`}`;
}

async function consequences(group) {
  const [users, methods] = await Promise.all([may("manage_users") ? all("/api/users", {}, 10_000) : [], get("/api/methods")]);
  const members = users.filter((one) => one.groups.some((has) => has.id === group.id));
  const limited = methods.methods.filter((method) => method.groups.some((has) => has.id === group.id));
  const sentences = [members.length > 0 ? `${count(members.length, "member")}: ${members.slice(0, 8).map((one) => one.name).join(", ")}.`
    : "It has no members that you see."];
  if (limited.length > 0) sentences.push(`Its members no longer see ${limited.slice(0, 8).map((method) => method.name).join(", ")}.`);
  else sentences.push("Methods that are limited to it are no longer seen by its members.");
  return sentences;
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
  return html`<${Dialog} title=${group.id ? `Rename ${group.name}` : "New group"} onClose=${onClose}><form class="form" onSubmit=${submit}>
    <${Text} label="Name" value=${name} onInput=${setName} required error=${errorOf(error, "name")} />
    <${ErrorBox} error=${error} />
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel<//><${Button} type="submit" kind="primary" busy=${isBusy}>Save<//>
      </div>
  </form><//>`;
}
