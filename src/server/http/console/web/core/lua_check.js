// Compiles Lua on the server, for the error marks of the editor.

import { post } from "./api.js";

/** The errors of a Lua chunk. Without an answer there are none: saving tells. */
export async function checkLua(content) {
  try {
    const { error } = await post("/api/scripts/check", { content });
    return error ? [error] : [];
  } catch {
    return [];
  }
}

/** The errors of a Lua expression. */
export async function checkExpression(text) {
  return checkLua(`return (${text}\n)`);
}

/** The errors that a refused save names for a field: "`webhook.template` does not compile: line 3: …". */
export function errorsAt(error, field) {
  if (!error?.message?.includes(`\`${field}\``)) return [];
  const line = error.message.match(/line (\d+)|:(\d+):/);
  return [{ line: Number(line?.[1] ?? line?.[2] ?? 1), message: error.message }];
}
