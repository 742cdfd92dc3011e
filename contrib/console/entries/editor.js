// CodeMirror 6 with Lua and JSON, as far as the console uses it.
export { EditorState } from "@codemirror/state";
export { EditorView, keymap, lineNumbers, highlightActiveLine, drawSelection } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { StreamLanguage, HighlightStyle, syntaxHighlighting, bracketMatching, indentUnit } from "@codemirror/language";
export { lua } from "@codemirror/legacy-modes/mode/lua";
export { json, jsonParseLinter } from "@codemirror/lang-json";
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
export { linter, setDiagnostics, lintKeymap } from "@codemirror/lint";
export { highlightSelectionMatches } from "@codemirror/search";
export { tags } from "@lezer/highlight";
