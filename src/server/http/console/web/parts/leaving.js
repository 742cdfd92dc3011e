// Unsaved changes: a form says that it has some, and leaving it asks once, inside the console as on closing the page.

import { html, useEffect, useRef } from "../core/html.js";
import { answerAsked, asked, holdUnsaved } from "../core/router.js";
import { Button } from "./basics.js";
import { Dialog } from "./dialogs.js";

/** Asks before the form of this component is left while it has changes. */
export function useLeaveQuestion(isChanged) {
  const form = useRef({});
  useEffect(() => (isChanged ? holdUnsaved(form.current) : undefined), [isChanged]);
}

export function LeaveQuestion() {
  if (!asked.value) return null;
  const answer = (isLeaving) => () => answerAsked(isLeaving);
  return html`<${Dialog} title="Leave without saving?" onClose=${answer(false)}>
    <p>What you have changed here is not saved, and will be lost.</p>
    <div class="dialog-actions">
      <${Button} kind="primary" onClick=${answer(false)}>Stay<//>
      <${Button} kind="danger" onClick=${answer(true)}>Leave<//>
    </div>
  <//>`;
}
