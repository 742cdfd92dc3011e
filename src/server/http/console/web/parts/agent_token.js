// The token of a space's agent, shown this once, with the command to paste.

import { html } from "../core/html.js";
import { Block } from "./basics.js";
import { SecretOnce } from "./dialogs.js";

export function AgentToken({ space, token, onClose }) {
  const command = `SVC_SERVER=${location.origin} SVC_AGENT_TOKEN=${token} svc agent start`;
  return html`<${SecretOnce} title=${`The agent token of ${space.name}`} secret=${token} onClose=${onClose}>
    <p class="spaced">Run this in the space. The agent links to this server, and the space becomes deployed.</p>
    <${Block} text=${command} label="Command" />
  <//>`;
}
