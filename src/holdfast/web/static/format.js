/** Numbers, times and values as short text. */

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let value = count;
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

/** "1 session", "3 sessions". */
export function plural(value, word, many = `${word}s`) {
  return `${count(value)} ${value === 1 ? word : many}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return plural(Math.round(seconds / 86400), "day");
}

/** "5 s ago"; the whole time goes into a title. */
export function age(time) {
  if (!time) return "–";
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  if (!Number.isFinite(seconds)) return String(time);
  const away = Math.abs(seconds);
  const text =
    away < 5 ? "now" : away < 60 ? `${Math.round(away)} s` : away < 3600 ? `${Math.round(away / 60)} min`
      : away < 86400 ? `${Math.round(away / 3600)} h` : away < 86400 * 60 ? `${Math.round(away / 86400)} d`
        : `${Math.round(away / 86400 / 30)} months`;
  if (text === "now") return text;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

export function dateTime(time) {
  if (!time) return "–";
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return String(time);
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function clock(time) {
  const date = new Date(time ?? "");
  return Number.isNaN(date.getTime()) ? "–" : date.toLocaleTimeString("en-GB");
}

/** Whether a value was left out by a rule before it was stored: `value` says of which type it was. */
export const isRedacted = value => value !== null && typeof value === "object" && value.$type === "redacted";

/** One line for a value of any shape. */
export function inline(value, limit = 120) {
  let text;
  if (value === undefined) text = "–";
  else if (typeof value === "string") text = value;
  else if (isRedacted(value)) text = String(value.value);
  else if (value && typeof value === "object" && "$type" in value && "value" in value) {
    text = `${value.$type}(${inline(value.value, limit)})`;
  } else text = JSON.stringify(value);
  text = text.replace(/\s+/g, " ");
  return text.length > limit ? `${text.slice(0, limit)}…` : text;
}

/** A path of keys and indexes as people write it: `messages[3].content`. */
export function path(keys) {
  if (!Array.isArray(keys)) return String(keys);
  return keys.reduce((text, key) => {
    if (typeof key === "number") return `${text}[${key}]`;
    const name = typeof key === "string" ? key : inline(key);
    if (!/^[\p{L}_$][\p{L}\p{N}_$-]*$/u.test(name)) return `${text}[${JSON.stringify(name)}]`;
    return text ? `${text}.${name}` : name;
  }, "");
}

/** An argument for a POSIX shell. */
export function shell(value) {
  const text = String(value);
  return /^[\w@%+=:,./~-]+$/.test(text) && !text.startsWith("-") && !text.startsWith("~")
    ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A literal of Python for a JSON value. */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([key, item]) => `${python(key)}: ${python(item)}`).join(", ")}}`;
  }
  // Escapes of JSON mean the same in Python; a lone surrogate, too.
  return JSON.stringify(value);
}
