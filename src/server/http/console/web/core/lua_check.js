// Compiles Lua on the server, for the error marks of the editor. A check that cannot be made is told as such: the text may be right or
// wrong.

import { post } from "./api.js";

/** The errors of a Lua chunk, `{line, message}`; of a check that failed, `{isUnchecked: true, message}`. */
export async function checkLua(content) {
  try {
    const { error } = await post("/api/scripts/check", { content });
    return error ? [error] : [];
  } catch (error) {
    return [{ isUnchecked: true, message: `This was not checked: ${error.message}` }];
  }
}

/** The errors of a Lua expression. */
export async function checkExpression(text) {
  const lines = text.split("\n").length;
  const errors = await checkLua(`return (${text}\n)`);
  // An error at the very end is on the line that was added here.
  return errors.map((error) => (error.line > lines ? { ...error, line: lines } : error));
}

/** The errors of a text template, from its preview on a sample: the server knows where its expressions begin and end. */
export async function checkTextTemplate(source) {
  const sink = { name: "check", events: "*", type: "webhook", webhook: { url: "https://example.com", template: { lang: "text", source } } };
  try {
    await post("/api/event-sinks/preview", { sink });
    return [];
  } catch (error) {
    // An error of the run is that of the sample, and shown by the preview.
    if (error.status === 400) return error.message.includes("does not compile") ? errorsAt(error, "webhook.template") : [];
    return [{ isUnchecked: true, message: `This was not checked: ${error.message}` }];
  }
}

/** The errors that a refused save names for a field: "`webhook.template` does not compile: line 3: …". */
export function errorsAt(error, field) {
  if (!error?.message?.includes(`\`${field}\``)) return [];
  const line = error.message.match(/line (\d+)|:(\d+):/);
  return [{ line: Number(line?.[1] ?? line?.[2] ?? 1), message: error.message }];
}
