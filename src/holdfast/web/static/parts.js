/** Small parts that screens share: chips, buttons, empty states, commands, tables of facts. */

import { h } from "./dom.js";
import * as f from "./format.js";
import { icon } from "./icons.js";
import { link } from "./router.js";

/** What a status means, as a colour. Each word appears once, here. */
const TONES = {
  good: ["alive", "live", "running", "done", "approved", "completed", "claimed", "taken up", "answered", "succeeded", "used"],
  wait: ["waiting", "pending", "open", "offered", "in_progress", "started", "modified", "idle", "scheduled",
    "sleeping", "interrupted"],
  bad: ["failed", "dead", "damaged", "rejected", "crashed", "cancelled", "abandoned", "timed out", "blocked", "stuck"],
  doubt: ["unknown", "in doubt", "in_doubt", "compensating"],
  info: ["passed on", "replayed", "compensated", "recorded"],
};

/** The statuses of runs, those that have not ended first. */
export const RUN_STATUSES = ["running", "waiting", "in doubt", "interrupted", "failed", "completed", "cancelled",
  "stopped"];

export function tone(word) {
  return Object.entries(TONES).find(([, words]) => words.includes(word ?? ""))?.[0] ?? "";
}

export function chip(word, kind = tone(word), title = undefined) {
  return h("span", { class: `chip ${kind}`, title }, String(word).replaceAll("_", " "));
}

export function button(label, run, more = {}) {
  const { kind = "", symbol, key, ...rest } = more;
  return h("button", { type: "button", class: `button ${kind}`, onclick: run, ...rest }, symbol && icon(symbol),
    label, key && h("kbd", { "aria-hidden": "true" }, key));
}

/** An empty state: what is missing, and what to do next. */
export function empty(symbol, title, ...next) {
  return h("div", { class: "empty" }, icon(symbol), h("h2", null, title), next);
}

export function time(when, more = "") {
  return h("time", { class: `nowrap ${more}`, datetime: when ?? "", title: f.dateTime(when) }, f.age(when));
}

export function facts(rows) {
  const given = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, given.map(([name, value]) =>
      [h("dt", { key: `t-${name}` }, name), h("dd", { key: `d-${name}` }, value)]));
}

export function figures(rows) {
  return h("div", { class: "figures" }, rows.map(([name, value]) =>
    h("div", { key: name }, h("div", { class: "figure-name" }, name), h("div", { class: "figure-value" }, value))));
}

export function card(title, actions, ...content) {
  return h("section", { class: "card" }, h("header", null, h("h2", { class: "grow" }, title), actions),
    h("div", { class: "inside stack-tight" }, content));
}

export function idLink(id, text = undefined) {
  if (!id) return "–";
  return h("a", { class: "mono", href: link.checkpoint(id), title: id }, text ?? String(id).slice(-8));
}

export function sessionLink(id) {
  return id ? h("a", { href: link.session(id), title: id }, id) : "–";
}

/** The command line and the Python line that do the same as this page. */
export function commands(lines, copy) {
  const all = [["Shell", lines.shell], ["Python", lines.python]];
  return h("div", { class: "stack-tight", "aria-label": "The same from a program", role: "group" },
    all.filter(([, text]) => text).map(([name, text]) =>
    h("div", { class: "command", key: name }, h("span", { class: "who" }, name), h("code", null, text),
      h("button", { type: "button", class: "button quiet tiny", "aria-label": `Copy the ${name} line`,
          onclick: () => copy(text ?? "") }, icon("copy")))));
}

export function table(label, columns, rows) {
  return h("div", { class: "table-box", tabindex: "0", role: "group", "aria-label": label },
    h("table", { "aria-label": label, class: columns.length > 5 ? "wide" : "" },
    h("thead", null, h("tr", null, columns.map(([name, kind]) =>
          (name ? h("th", { class: kind, scope: "col" }, name) : h("td", null))))),
    h("tbody", null, rows.map((cells, at) =>
        h("tr", { key: cells.key ?? at }, (cells.cells ?? cells).map((cell, index) =>
      h("td", { class: columns[index]?.[1] }, cell)))))));
}

/** The head of a screen: where it is, its title, and what can be done. */
export function head(title, more = {}) {
  return h("header", { class: "head", key: "head" },
    h("div", { class: "head-text" }, more.crumb && h("div", { class: "crumb clip" }, more.crumb),
      h("h1", { class: "lines-3", title }, title), more.under),
    more.actions && h("div", { class: "line wrap" }, more.actions));
}

/** Calls `run` at most once in `ms`, and once more at the end. */
export function throttle(run, ms) {
  let last = 0;
  let timer = 0;
  const call = () => {
    last = Date.now();
    timer = 0;
    run();
  };
  return () => {
    if (timer) return;
    timer = window.setTimeout(call, Math.max(0, last + ms - Date.now()));
  };
}
