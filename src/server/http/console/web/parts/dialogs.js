// Dialogs: a frame around the browser's own `<dialog>`, which keeps the focus inside, and the question before a deletion.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { useAction, useResource } from "../core/resource.js";
import { Button, Copy, ErrorBox } from "./basics.js";
import { Icon } from "./icons.js";

export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef();
  useEffect(() => {
    const [dialog, opener] = [element.current, document.activeElement];
    dialog.showModal();
    return () => {
      // Gives the focus back to what had it, if the dialog is still in the page.
      dialog.close();
      if (document.activeElement === document.body && opener?.isConnected) {
        opener.focus();
      }
    };
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} onCancel=${onCancel} aria-labelledby="dialog-title">
    <div class="dialog-head">
      <h2 id="dialog-title">${title}</h2>
      <button type="button" class="button quiet small" aria-label="Close" onClick=${onClose}><${Icon} name="close" size=${16} /></button>
    </div>
    ${children}
  </dialog>`;
}

/**
 * Asks once before something that cannot be undone. `consequences` is a list of sentences, or a function that loads it.
 * `action` runs on confirmation; the dialog stays open with the error if it fails.
 */
export function Confirm({ title, consequences = [], verb = "Delete", kind = "danger", action, onClose }) {
  const { isBusy, error, run } = useAction();
  const found = useResource(async () => (Array.isArray(consequences) ? consequences : consequences()), []);
  const confirm = () => run(async () => {
    await action();
    onClose();
  });
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${found.isLoading && !found.data && html`<p class="muted">Looking what hangs on it…</p>`}
    ${found.error && html`<p>It is not known what hangs on it:</p><${ErrorBox} error=${found.error} retry=${found.reload} />`}
    ${found.data?.length > 0 && html`<ul class="consequences">
      ${found.data.map((sentence) => html`<li>${sentence}</li>`)}
    </ul>`}
    <${ErrorBox} error=${error} />
    <div class="dialog-actions">
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} kind=${kind} busy=${isBusy} disabled=${found.isLoading && !found.data} onClick=${confirm}>${verb}<//>
    </div>
  <//>`;
}

/** A button that asks before it acts. */
export function ConfirmButton({ label, icon = "trash", title, consequences, verb = label, kind = "danger", buttonKind = "", action }) {
  const [isOpen, setOpen] = useState(false);
  return html`<${Button} kind=${buttonKind} icon=${icon} onClick=${() => setOpen(true)}>${label}<//>
    ${isOpen && html`<${Confirm} title=${title} consequences=${consequences} verb=${verb} kind=${kind} action=${action}
      onClose=${() => setOpen(false)} />`}`;
}

/** The buttons at the end of a dialog's form: leave it, or send it. */
export function FormActions({ onClose, isBusy, icon, children }) {
  return html`<div class="dialog-actions">
    <${Button} onClick=${onClose}>Cancel<//>
    <${Button} type="submit" kind="primary" icon=${icon} busy=${isBusy}>${children}<//>
  </div>`;
}

/** A secret that is shown this once. */
export function SecretOnce({ title, secret, children, onClose }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>It is not stored and cannot be shown again. Copy it now.</p>
    <div class="secret"><code>${secret}</code><${Copy} text=${secret} /></div>
    ${children}
    <div class="dialog-actions"><${Button} kind="primary" onClick=${onClose}>Done<//></div>
  <//>`;
}
