// Times, sizes and numbers as people read them.

import { indented } from "./json.js";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayAndClock = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});
const numbers = new Intl.NumberFormat();

/** A local time: the clock alone if it is today. */
export function localTime(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  return at.toDateString() === new Date().toDateString() ? clock.format(at) : dayAndClock.format(at);
}

/** A local time with its day. */
export function localDate(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? String(text) : dayAndClock.format(at);
}

/** `3 min ago`, or `in 2 h`. */
export function relative(text, now = Date.now()) {
  const milliseconds = Date.parse(text) - now;
  const span = duration(Math.abs(milliseconds));
  if (Math.abs(milliseconds) < 1000) return "now";
  return milliseconds < 0 ? `${span} ago` : `in ${span}`;
}

/** A span of milliseconds in its largest unit. */
export function duration(milliseconds) {
  if (milliseconds < 1) return `${milliseconds.toFixed(2)} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const units = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
  const [size, unit] = units.find(([size]) => milliseconds >= size);
  const count = milliseconds / size;
  return `${count < 10 && unit === "s" ? count.toFixed(1) : Math.floor(count)} ${unit}`;
}

export function number(value) {
  return numbers.format(value);
}

/** `1 event`, `2 events`. */
export function count(value, noun, plural = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  return size < 1024 * 1024 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / 1024 / 1024).toFixed(1)} MiB`;
}

/** A value, or a JSON text, with indentation; a text as it is if it is no JSON. */
export function pretty(value) {
  return typeof value === "string" ? indented(value) : JSON.stringify(value, null, 2);
}

/** The first characters of an id, enough to tell ids on one page apart. UUIDv7s differ at the end. */
export function shortId(id) {
  return `…${String(id).slice(-8)}`;
}

/** The value of an `<input type="datetime-local">` for a time, and back. */
export function toLocalInput(text) {
  if (!text) return "";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

export function fromLocalInput(text) {
  const at = new Date(text);
  return text && !Number.isNaN(at.getTime()) ? at.toISOString() : "";
}
