// The code editor: CodeMirror in a shadow root, where its styles are constructed sheets, which the page's policy allows. It is loaded
// when it is first shown.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { recoveries } from "../core/api.js";
import { loadFile } from "../core/load.js";
import { Loading } from "./basics.js";

const loadEditor = () => loadFile("../vendor/editor.js");

/**
 * An editor of Lua, JSON, text with Lua in `${{ }}` (`template`), or plain text. `scope` has the names for completion and `modules`
 * those of modules that can be required; `check(text)` resolves to errors `{line, message}` while typing, and `errors` are those of the
 * last save.
 */
export function Editor({ label, value, onInput, language = "lua", scope, modules, check, errors = [], readOnly = false, lines = 12 }) {
  const host = useRef();
  const view = useRef();
  const latest = useRef({});
  const [found, setFound] = useState([]);
  latest.current = { onInput, scope, modules, check, setFound };
  const [failed, setFailed] = useState(false);
  const [isReady, setReady] = useState(false);

  const recovered = recoveries.value;
  useEffect(() => setFailed(false), [recovered]);
  useEffect(() => {
    if (failed) return undefined;
    let isGone = false;
    loadEditor().then((cm) => {
      if (isGone || !host.current) return;
      const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
      const extensions = extensionsOf(cm, { label, language, readOnly, lines, latest });
      view.current = new cm.EditorView({ state: cm.EditorState.create({ doc: value ?? "", extensions }), parent: root, root });
      setReady(true);
    }, () => isGone || setFailed(true));
    return () => {
      isGone = true;
      view.current?.destroy();
      view.current = null;
      setReady(false);
    };
  }, [language, readOnly, failed]);

  useEffect(() => {
    const editor = view.current;
    // The editor has line feeds only; a text with other line breaks is not changed by being shown.
    const text = (value ?? "").replace(/\r\n?/g, "\n");
    if (!editor || editor.state.doc.toString() === text) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
  }, [value, isReady]);

  useEffect(() => {
    if (!view.current || errors.length === 0) return;
    const mark = (cm) => cm.setDiagnostics(view.current.state, errors.map((error) => diagnostic(view.current.state, error)));
    loadEditor().then((cm) => view.current?.dispatch(mark(cm)), () => {});
  }, [JSON.stringify(errors), isReady]);

  if (failed) {
    return html`<textarea class="plain-editor" aria-label=${label} rows=${lines} readonly=${readOnly} value=${value ?? ""}
        onInput=${(event) => onInput(event.target.value)}></textarea>
      <div class="field-note"
        role="status">The editor could not be loaded. Nothing is completed or checked here until it is.</div>`;
  }
  return html`<div class="editor">
    <div ref=${host} class="editor-host" style=${{ minHeight: `${lines * 20}px` }}></div>
    ${!isReady && html`<${Loading} label="Loading the editor" />`}
    <div role="status">${found.map((error) => html`<${Found} key=${error.line} error=${error} />`)}</div>
  </div>`;
}

function Found({ error }) {
  if (error.isUnchecked) return html`<div class="field-note">${error.message}</div>`;
  return html`<div class="field-error">${error.line ? `Line ${error.line}: ` : ""}${error.message}</div>`;
}

function extensionsOf(cm, { label, language, readOnly, lines, latest }) {
  const extensions = [
    cm.history(), cm.drawSelection(), cm.bracketMatching(), cm.closeBrackets(),
    cm.highlightSelectionMatches(), cm.indentUnit.of("  "), cm.syntaxHighlighting(highlighting(cm)), look(cm, lines),
      cm.EditorView.lineWrapping,
    cm.EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
    cm.keymap.of([...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.historyKeymap, ...cm.completionKeymap, ...cm.lintKeymap]),
    cm.EditorView.domEventHandlers({ beforeinput: replaceSelected }),
    cm.EditorView.updateListener.of((update) => update.docChanged && latest.current.onInput?.(update.state.doc.toString())),
  ];
  if (lines > 1) extensions.push(cm.lineNumbers(), cm.highlightActiveLine());
  if (readOnly) extensions.push(cm.EditorState.readOnly.of(true));
  if (language === "lua" || language === "template") {
    const completion = (context) => complete(context, latest.current, language === "template");
    if (language === "lua") extensions.push(cm.StreamLanguage.define(cm.lua));
    extensions.push(cm.autocompletion({ override: [completion] }), cm.linter((view) => lint(view, latest.current), { delay: 500 }));
  } else if (language === "json") {
    const parse = cm.jsonParseLinter();
    extensions.push(cm.json(), cm.linter((view) => (view.state.doc.length === 0 ? [] : parse(view))));
  }
  return extensions;
}

/**
 * Types over a selection. The browser itself would keep the look of the selected text in a style attribute, which the page's policy
 * refuses.
 */
function replaceSelected(event, view) {
  const isTyping = event.inputType === "insertText" && event.data && !view.composing;
  if (!isTyping || view.state.selection.main.empty || view.state.readOnly) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type" });
  return true;
}

/** Asks `check` for the errors of the text. An answer that comes after a change is dropped by the linter. */
async function lint(view, { check, setFound }) {
  const text = view.state.doc.toString();
  const errors = check && text.trim() !== "" ? await check(text) : [];
  setFound(errors);
  return errors.filter((error) => !error.isUnchecked).map((error) => diagnostic(view.state, error));
}

function diagnostic(state, { line, message }) {
  const at = state.doc.line(Math.min(Math.max(line ?? 1, 1), state.doc.lines));
  return { from: at.from, to: at.to, severity: "error", message };
}

/** Completes a name, or the member of a table: `event.da` or `string.for`. In a text template, within `${{` and `}}` only. */
function complete(context, { scope, modules }, isTemplate) {
  const before = context.matchBefore(/[A-Za-z_][\w.]*/);
  if (!scope || (!before && !context.explicit)) return null;
  if (isTemplate && !isInExpression(context.state.sliceDoc(0, context.pos))) return null;
  const path = (before?.text ?? "").split(".");
  const last = path.pop();
  let members = { ...scope, ...required(context.state.doc.toString(), modules) };
  for (const name of path) members = members?.[name]?.members;
  if (!members) return null;
  const options = Object.entries(members).map(([label, { kind, detail, info }]) => ({ label, type: kind, detail, info }));
  const words = path.length === 0 ? KEYWORDS.map((label) => ({ label, type: "keyword" })) : [];
  return { from: context.pos - last.length, options: [...options, ...words], validFor: /^\w*$/ };
}

function isInExpression(text) {
  return text.lastIndexOf("${{") > text.lastIndexOf("}}");
}

/** The locals of a text that hold a module: `local event = require "svc.event"`. */
function required(text, modules = {}) {
  const locals = {};
  for (const [, local, name] of text.matchAll(/\blocal\s+([A-Za-z_]\w*)\s*=\s*require\s*\(?\s*["']([\w.]+)["']/g)) {
    if (modules[name]) locals[local] = { kind: "variable", info: `The module ${name}`, members: modules[name] };
  }
  return locals;
}

const KEYWORDS = (
  "local function return if then else elseif end for in do while repeat until break continue and or not nil true false"
).split(" ");

function highlighting(cm) {
  const { tags } = cm;
  return cm.HighlightStyle.define([
    { tag: tags.keyword, color: "var(--code-keyword)" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
    { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
    { tag: tags.propertyName, color: "var(--code-name)" },
    { tag: tags.standard(tags.name), color: "var(--code-name)" },
  ]);
}

function look(cm, lines) {
  return cm.EditorView.theme({
    "&": { color: "var(--text)", backgroundColor: "var(--field)", fontSize: "13px", borderRadius: "8px",
      border: "1px solid var(--field-line)" },
    "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
    ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px", minHeight: `${lines * 20}px`, maxHeight: "60vh", overflow: "auto" },
    ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
    ".cm-activeLine": { backgroundColor: "var(--hover)" },
    ".cm-cursor": { borderLeftColor: "var(--text)" },
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "var(--selection)" },
    ".cm-selectionBackground": { backgroundColor: "var(--selection)" },
    ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "8px",
      overflow: "hidden" },
    ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
    ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal" },
    ".cm-tooltip-autocomplete > ul > li[aria-selected] .cm-completionDetail": { color: "inherit" },
    // Drawn without the image of the default look, which the page's policy refuses.
    ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
    ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  });
}
