// Loading a file of the console when it is first needed, and again after a failure.

import { lost } from "./api.js";

/** Failures of one file after which only loading the page anew can help: the server may have other files now. */
const MAX_FAILURES = 3;

/** How often each file could not be loaded, and the loads that succeeded or are under way. */
const failures = new Map();
const loads = new Map();

/**
 * The module at a path relative to this file. A browser may keep the failure of an address for good, so that each further try has another
 * one. A failure is taken for an unreachable server, which is asked until it answers; whoever needs the file then tries again.
 */
export function loadFile(path) {
  if (!loads.has(path)) loads.set(path, load(path));
  return loads.get(path);
}

async function load(path) {
  const failed = failures.get(path) ?? 0;
  try {
    return await import(failed === 0 ? path : `${path}?retry=${failed}`);
  } catch (error) {
    failures.set(path, failed + 1);
    loads.delete(path);
    if (failed + 1 < MAX_FAILURES) lost();
    throw error;
  }
}
