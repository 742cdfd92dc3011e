// CodeMirror 6 with Lua and JSON, as far as the console uses it.
export { EditorState, Compartment } from "@codemirror/state";
export { EditorView, keymap, lineNumbers, highlightActiveLine, drawSelection, placeholder } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { StreamLanguage, HighlightStyle, syntaxHighlighting, bracketMatching, indentUnit } from "@codemirror/language";
export { lua } from "@codemirror/legacy-modes/mode/lua";
export { json, jsonParseLinter } from "@codemirror/lang-json";
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
export { linter, lintGutter, setDiagnostics, lintKeymap } from "@codemirror/lint";
export { searchKeymap, highlightSelectionMatches } from "@codemirror/search";
export { tags } from "@lezer/highlight";
