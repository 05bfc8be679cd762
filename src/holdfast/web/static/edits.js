/** Differences, drawn: edits of a state, changes of files, lines of a file, messages. */

import { h } from "./dom.js";
import * as f from "./format.js";
import { chip } from "./parts.js";
import { isCut } from "./values.js";

const KINDS = { add: ["added", "good"], remove: ["removed", "bad"], change: ["changed", "info"],
  splice: ["list changed", "info"], reorder: ["reordered", ""] };
const FILES = { A: ["added", "good"], M: ["changed", "info"], D: ["deleted", "bad"], T: ["other kind", "wait"],
  P: ["permissions", ""] };

/** A value in full as far as the answer has it, on as many lines as it needs. */
export function text(value, limit = 2000) {
  if (isCut(value)) return value.value === null ? `${value.of} of ${f.count(value.size)}`
    : `${text(value.value, limit)} … (${f.count(value.size)} in all)`;
  if (typeof value === "string") return value.length > limit ? `${value.slice(0, limit)}…` : value;
  if (f.isRedacted(value)) return String(value.value);
  if (value && typeof value === "object" && "$type" in value
    && "value" in value) return `${value.$type} ${text(value.value, limit)}`;
  const json = JSON.stringify(value, null, 1) ?? "–";
  return json.length > limit ? `${json.slice(0, limit)}…` : json;
}

/** Whether anything in a value was cut by the server. */
export function hasCut(value) {
  if (value === null || typeof value !== "object") return false;
  return isCut(value) || Object.values(value).some(hasCut);
}

function lines(value, kind) {
  return Array.isArray(value) ? value.map((one, index) => h("div", { class: kind, key: index }, text(one)))
    : h("div", { class: kind }, text(value));
}

export function drawEdit(edit, props = {}) {
  const [word, kind] = KINDS[edit.kind] ?? [edit.kind, ""];
  const where = edit.kind === "splice" ? `${f.path(edit.path)}[${edit.at}…]` : f.path(edit.path);
  const splice = edit.kind === "splice";
  return h("div", { ...props, class: `edit ${props.class ?? ""}` },
    h("div", { class: "where" }, where, " ", chip(word, kind)),
    h("div", { class: "stack-tight" },
      "old" in edit && (splice ? edit.old?.length !== 0 && lines(edit.old, "was")
        : h("div", { class: "was" }, text(edit.old))),
      "new" in edit && (splice ? edit.new?.length !== 0 && lines(edit.new, "now")
        : h("div", { class: "now" }, text(edit.new))),
      edit.keys && h("div", { class: "muted" }, f.inline(edit.keys, 300))));
}

/** Paths that an edit lights in the tree of one part: itself and what is above it. */
export function changedPaths(edits, part) {
  const paths = new Map();
  for (const edit of edits) {
    if (edit.path[0] !== part) continue;
    const path = edit.path.slice(1);
    for (let length = 0; length < path.length; length += 1) {
      const above = JSON.stringify(path.slice(0, length));
      if (!paths.has(above)) paths.set(above, false);
    }
    paths.set(JSON.stringify(path), edit.kind !== "splice");
    const added = edit.kind === "splice" ? (edit.new?.length ?? 0) : 0;
    for (let index = 0; index < added; index += 1) paths.set(JSON.stringify([...path, edit.at + index]), true);
  }
  return paths;
}

export function fileStatus(status) {
  const [word, kind] = FILES[status] ?? [status, ""];
  return chip(word, kind);
}

export function drawFileLines(answer) {
  if (answer.is_secret) return h("p", { class: "muted" }, "This file is kept secret: its text is not shown.");
  if (answer.is_binary) return h("p", { class: "muted" }, "This file is binary. Download it to look into it.");
  if (answer.too_large) return h("p", { class: "muted" }, "This file is too large to compare here. Download it.");
  if (!answer.lines?.length) return h("p", { class: "muted" }, "The text is the same.");
  return h("div", { class: "lines", tabindex: "0", role: "group", "aria-label": `Changed lines of ${answer.path}` },
    answer.lines.map((line, at) =>
    h("div", { key: at, class: line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : line.startsWith("@@")
        ? "hunk" : "" }, line || " ")),
  answer.cut && h("div", { class: "hunk" }, "The rest is not shown."));
}

function drawPart(part, at, open) {
  if (part.type === "text") return h("div", { class: "said", key: at }, text(part.content, 20_000));
  if (part.type === "reasoning") return h("details", { key: at },
    h("summary", { class: "muted small" }, "Reasoning"),
    h("div", { class: "said muted" }, text(part.content, 20_000)));
  if (part.type === "tool_call") {
    const effect = part.effect;
    return h("div", { class: "call", key: at },
      h("div", { class: "line wrap" }, h("span", { class: "mono" }, part.name),
        effect ? h("a", { href: "/effects", title: effect.effect_id },
          chip(effect.in_doubt ? "unknown" : effect.state)) : null),
      h("div", { class: "mono muted said" }, text(part.arguments)));
  }
  if (part.type === "tool_call_response") {
    return h("div", { class: "call", key: at },
      h("div", { class: "line" }, h("span", { class: "muted small" }, "Result of"),
        h("span", { class: "mono" }, part.name || part.id), part.is_error && chip("failed")),
      (Array.isArray(part.content) ? part.content : [{ type: "text", content: part.content }])
        .map((one, index) => drawPart(one, index, open)));
  }
  return h("div", { class: "mono muted said", key: at },
    `${part.type}: ${text(part.mime_type ? { mime_type: part.mime_type, uri: part.uri } : part, 400)}`);
}

export function drawMessage(message, open = null) {
  const usage = Object.entries(message.usage ?? {}).filter(([, value]) => typeof value === "number");
  return h("div", { class: `message ${["user", "assistant"].includes(message.role) ? message.role : ""}`,
      key: message.index },
    h("div", { class: "role" }, message.role,
      message.index !== undefined && h("span", { class: "muted small" }, ` ${message.index}`)),
    h("div", { class: "stack-tight" }, (message.parts ?? []).map((part, at) => drawPart(part, at, open)),
      usage.length > 0 && h("div", { class: "small muted" },
        usage.map(([name, value]) => `${name.replaceAll("_", " ")} ${f.count(value)}`).join(" · "))));
}
