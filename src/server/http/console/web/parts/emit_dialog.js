// Raising a custom event by hand.

import { html, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { navigate, to } from "../core/router.js";
import { useAction } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, ErrorBox } from "./basics.js";
import { Dialog, FormActions } from "./dialogs.js";
import { Editor } from "./editor.js";
import { errorOf, Text } from "./forms.js";

/** `type` is without `custom.`, which the server puts in front. */
export function EmitDialog({ type = "", payload = "{\n  \n}", title = "Raise an event", onClose }) {
  const [kind, setKind] = useState(type);
  const [text, setText] = useState(payload);
  const { isBusy, error, run } = useAction();
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      const receipt = await post("/api/events/emit", { type: kind.trim(), payload: parsePayload(text) });
      announce(`Accepted, for ${count(receipt.matched.length, "sink")}.`);
      onClose();
      navigate(to("events", receipt.event_id));
    });
  };
  return html`<${Dialog} title=${title} onClose=${onClose} wide>
    <form class="form" onSubmit=${submit}>
      <${Text} label="Type" hint="The service puts custom. in front." value=${kind} onInput=${setKind} placeholder="deploy.done" required
        error=${errorOf(error, "type")} />
      <div class="field"><span>Payload</span>
        <${Editor} label="Payload, a JSON object" language="json" value=${text} onInput=${setText} lines=${8} />
      </div>
      <${ErrorBox} error=${error} />
      <${FormActions} onClose=${onClose} isBusy=${isBusy} icon="send">Raise<//>
    </form>
  <//>`;
}

/** The object that a JSON text is; an empty text is an empty object. */
export function parsePayload(text) {
  if (text.trim() === "") return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The payload is not JSON: ${error.message}`);
  }
}
