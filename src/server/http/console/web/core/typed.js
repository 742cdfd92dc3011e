// Text filters of the address, while they are typed.

import { useEffect, useRef, useState } from "./html.js";
import { place, setQuery } from "./router.js";

/** Time in milliseconds without a key after which a text goes into the address. */
const DELAY = 300;

/**
 * A text filter, `[text, setText]`: what is typed goes into this field of the query once typing stops. A query that changes otherwise, by
 * a link, the back button or another filter, has the last word.
 */
export function useTyped(field, { isTrimmed = true } = {}) {
  const present = place.value.query[field] ?? "";
  const [text, setText] = useState(present);
  const written = useRef(present);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (present === written.current) return;
    clearTimeout(timer.current);
    written.current = present;
    setText(present);
  }, [present]);
  const write = (value) => {
    written.current = value;
    if (value !== (place.value.query[field] ?? "")) setQuery({ [field]: value }, { replace: true });
  };
  const onInput = (typed) => {
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => write(isTrimmed ? typed.trim() : typed), DELAY);
  };
  return [text, onInput];
}
