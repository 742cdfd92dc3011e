// Raising a custom event by hand.

import { html, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { navigate, to } from "../core/router.js";
import { useAction } from "../core/resource.js";
import { count, pretty } from "../core/format.js";
import { JsonText } from "../core/json.js";
import { announce, ErrorBox } from "./basics.js";
import { Dialog, FormActions } from "./dialogs.js";
import { Editor } from "./editor.js";
import { errorOf, Text } from "./forms.js";

/** `type` is without `custom.`, which the server puts in front. `payload` is sent as it is unless it is changed. */
export function EmitDialog({ type = "", payload, title = "Raise an event", onClose }) {
  const shown = payload === undefined ? "{\n  \n}" : pretty(payload);
  const [kind, setKind] = useState(type);
  const [text, setText] = useState(shown);
  const { isBusy, error, run } = useAction();
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      const isShown = text === shown && payload !== undefined;
      const receipt = await post("/api/events/emit", { type: kind.trim(), payload: parsePayload(isShown ? payload : text) });
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

/** A JSON text, which is sent as it is; an empty text is an empty object. */
export function parsePayload(text) {
  if (text.trim() === "") return {};
  try {
    JSON.parse(text);
    return new JsonText(text);
  } catch (error) {
    throw new Error(`The payload is not JSON: ${error.message}`);
  }
}
