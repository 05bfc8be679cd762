/** The keyboard: one map for the page, one for the screen; the help is drawn from both. */

/**
 * @typedef {{key: string, label: string, run: () => any, hidden?: boolean}} Key
 */

function isTyping(target) {
  return target?.closest?.("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select") !== null;
}

/** The key of an event as the maps write it: "?", "j", "Ctrl+k", "Escape". */
export function nameOf(event) {
  const held = event.ctrlKey || event.metaKey;
  return (held ? "Ctrl+" : "") + (event.key.length === 1 && held ? event.key.toLowerCase() : event.key);
}

/** Runs the first key of the given maps that the event means. */
export function dispatch(event, maps) {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = nameOf(event);
  if (isTyping(event.target) && !name.startsWith("Ctrl+") && name !== "Escape") return;
  if (event.target?.type === "range" && /^(Arrow|Page|Home|End)/.test(name)) return; // the slider's own keys
  if (document.querySelector("dialog[open]")) {
    if (name === "Ctrl+k") event.preventDefault(); // the browser has a use of its own for it
    return;
  }
  for (const map of maps) {
    const found = map.find((one) => one.key === name);
    if (found) {
      event.preventDefault();
      found.run();
      return;
    }
  }
}
