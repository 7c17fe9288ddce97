// Going from match to match and from error to error, and marking a line by key.
import { announce } from "../announce.js";

export function makeSteps({ view, follow, marks, tellFound }) {
  const go = (lines, direction) => {
    follow.pause();
    tellFound(view.step(lines, direction));
  };
  return {
    match: (direction) => go(view.hits(), direction),
    error: (direction) => {
      const lines = view.errors();
      if (!lines.length) announce("No errors among the lines in the page");
      else go(lines, direction);
    },
    // The line that was stepped to, else the first in sight.
    mark: (isExtended) => {
      const line = view.current ?? view.window.top?.line;
      if (!line || line.k === "build") return;
      follow.pause();
      marks.take(line, isExtended);
      announce(`Line ${line.n} of ${line.k} marked; the address leads to it`);
    },
  };
}
