/** A value as a tree: opened where the reader asks, read from the server where it was cut. */

import { get, isAbort } from "./api.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { literal } from "./router.js";

const FIRST = 200; // children drawn at once

export const isCut = value => value !== null && typeof value === "object" && value.$type === "cut"
  && typeof value.of === "string";
const isTyped = value => value !== null && typeof value === "object" && !Array.isArray(value) && "$type" in value
  && "value" in value;
const keyOf = (path) => JSON.stringify(path);

/**
 * The children of a value: steps of its path, their labels and values; null for a leaf.
 *
 * In a dict with keys that are no text, the step is a number, and `name` the key, as differences have it.
 */
function childrenOf(value) {
  const inner = isTyped(value) && value.$type !== "cut" ? value.value : isCut(value) ? value.value : value;
  const kind = isCut(value) ? value.of : isTyped(value) ? value.$type : null;
  if (kind === "dict" && Array.isArray(inner)) return inner.map(([key, item], index) =>
    ({ step: index, name: key, label: f.inline(key, 40), value: item }));
  const base = isCut(value) ? (value.offset ?? 0) : 0;
  if (Array.isArray(inner)) return inner.map((item, index) =>
    ({ step: base + index, label: String(base + index), value: item }));
  if (inner !== null && typeof inner === "object") return Object.entries(inner)
    .map(([key, item]) => ({ step: key, label: key, value: item }));
  return null;
}

const isContainer = value => (childrenOf(value)?.length ?? 0) > 0
  || (isCut(value) && value.value === null && !["bytes", "bytearray", "str"].includes(value.of));

function describe(value) {
  if (isCut(value)) return `${value.of}, ${["bytes", "bytearray"].includes(value.of) ? f.bytes(value.size) : value.of === "str" ? f.plural(value.size, "character") : f.plural(value.size, "item")}`;
  const size = childrenOf(value)?.length ?? 0;
  const kind = isTyped(value) ? value.$type : Array.isArray(value) ? "list" : "dict";
  if (size === 0) return `empty ${kind}`;
  return `${kind}, ${f.plural(size, "item")}`;
}

/** The beginning of what a closed value holds. */
function peek(value) {
  const children = (childrenOf(value) ?? []).slice(0, 4);
  const text = (one) => (isContainer(one.value) || isCut(one.value) ? "…" : f.inline(one.value, 60));
  const isList = children.every((one) => typeof one.step === "number");
  return children.map((one) => (isList ? text(one) : `${one.label}: ${text(one)}`)).join(", ");
}

export class ValueTree {
  constructor(app, options) {
    this.app = app;
    this.options = options;
    /** Keys of changed paths, and whether the value itself changed or only something in it. */
    this.changed = options.changed ?? new Map();
    this.found = null;
    this.loaded = new Map();
    this.shown = new Map();
    this.opened = new Map();
  }

  /** Whether a container is open: by the reader, because something below changed, or because it is small. */
  isOpen(path, value, names) {
    const given = this.opened.get(keyOf(path));
    if (given !== undefined) return given;
    if (this.found && keyOf(this.found.slice(0, path.length)) === keyOf(path)
      && path.length < this.found.length) return true;
    if (this.changed.has(keyOf(names)) && path.length < 4) return true;
    return path.length === 0 || (path.length === 1 && (childrenOf(value)?.length ?? 99) <= 12);
  }

  toggle(path, value, names) {
    const open = !this.isOpen(path, value, names);
    this.opened.set(keyOf(path), open);
    if (open && isCut(value) && value.value === null) this.fetch(path, value, 0);
    this.app.redraw();
  }

  /** Opens the way to a path, reads what was cut on it, and lights it. */
  async reveal(path) {
    this.found = path;
    for (let length = 0; length < path.length; length += 1) this.opened.set(keyOf(path.slice(0, length)), true);
    const parent = path.slice(0, -1);
    try {
      const answer = await get(`checkpoints/${literal(this.options.ref)}/state`,
        { part: this.options.part, path: JSON.stringify(parent), offset: offsetOf(path.at(-1)) });
      this.loaded.set(keyOf(parent), answer.value);
    } catch (error) {
      if (!isAbort(error)) this.app.toast(error.message);
    }
    this.app.redraw();
    requestAnimationFrame(() => requestAnimationFrame(() =>
        document.querySelector(".node.is-found")?.scrollIntoView({ block: "center" })));
  }

  async fetch(path, before, offset) {
    const text = before.of === "str" ? 200_000 : undefined;
    try {
      const answer = await get(`checkpoints/${literal(this.options.ref)}/state`,
        { part: this.options.part, path: JSON.stringify(path), offset, text });
      this.loaded.set(keyOf(path), offset === 0 ? answer.value : joined(before, answer.value));
    } catch (error) {
      this.app.toast(error.message);
    }
    this.app.redraw();
  }

  draw() {
    return h("div", { class: "tree" },
      this.drawNode([], this.options.label ?? this.options.part, this.options.value));
  }

  drawNode(path, label, given, names = path) {
    const key = keyOf(path);
    const value = this.loaded.get(key) ?? given;
    const container = isContainer(value);
    const open = container && this.isOpen(path, value, names);
    const changed = this.changed.has(keyOf(names)) && (this.changed.get(keyOf(names)) || !open);
    const marks = `${changed ? "is-changed" : ""} ${this.found && keyOf(this.found) === key ? "is-found" : ""}`;
    return h("div", { key },
      h("div", { class: `node ${marks}` },
        container ? h("button", { type: "button", class: "twist", "aria-expanded": String(open),
            "aria-label": `${open ? "Close" : "Open"} ${label}`, onclick: () => this.toggle(path, value, names) },
          open ? "▾" : "▸") : h("span", { class: "leaf" }),
        h("span", { class: "k" }, `${label}:`),
        container ? h("span", { class: "v size" }, describe(value),
          !open && path.length > 0 && h("span", { class: "peek" }, peek(value))) : this.drawLeaf(path, value),
        changed && h("span", { class: "visually-hidden" }, "changed")),
      open && this.drawChildren(path, value, names));
  }

  drawChildren(path, value, names) {
    const children = childrenOf(value);
    if (children === null) return h("ul", null, h("li", { class: "muted" }, "Reading…"));
    const key = keyOf(path);
    const shown = this.shown.get(key) ?? FIRST;
    const total = isCut(value) ? value.size : children.length;
    const first = isCut(value) ? (value.offset ?? 0) : 0;
    const more = () => {
      this.shown.set(key, shown + FIRST);
      if (shown >= children.length) this.fetch(path, value, first + children.length);
      this.app.redraw();
    };
    return h("ul", null,
      first > 0 && h("li", null, h("button", { type: "button", class: "more",
            onclick: () => this.fetch(path, value, 0) }, `${f.count(first)} before`)),
      children.slice(0, shown).map((child) =>
        h("li", { key: String(child.step) }, this.drawNode([...path, child.step], child.label, child.value, [...names, child.name ?? child.step]))),
      (first + Math.min(shown, children.length) < total || children.length > shown)
        && h("li", null, h("button", { type: "button", class: "more", onclick: more },
            `${f.count(total - first - Math.min(shown, children.length))} more`)));
  }

  drawLeaf(path, value) {
    if (isCut(value)) {
      if (value.of !== "str") return h("span", { class: "v typed" }, describe(value));
      const have = value.value?.length ?? 0;
      return h("span", { class: "v str" }, value.value, "… ",
        h("button", { type: "button", class: "more",
            onclick: () => this.fetch(path, value, (value.offset ?? 0) + have) },
          `${f.count(value.size - have)} more characters`));
    }
    if (f.isRedacted(value)) return h("span", { class: "v typed",
        title: "A rule left this value out. It was never stored." }, String(value.value));
    if (childrenOf(value)?.length === 0) return h("span", { class: "v size" }, describe(value));
    if (isTyped(value)) return h("span", { class: "v" }, h("span", { class: "typed" }, `${value.$type} `),
      f.inline(value.value, 2000));
    if (value === null) return h("span", { class: "v null" }, "null");
    if (typeof value === "string") return h("span", { class: "v str" }, value === "" ? "\"\"" : value);
    return h("span", { class: `v ${typeof value === "boolean" ? "bool" : "num"}` }, String(value));
  }
}

function offsetOf(step) {
  return typeof step === "number" && step >= 100 ? step - (step % 100) : 0;
}

/** Two stretches of one cut value, one after the other. */
function joined(before, after) {
  const rest = isCut(after) ? after.value : after;
  let value = rest;
  if (typeof before.value === "string" && typeof rest === "string") value = before.value + rest;
  else if (Array.isArray(before.value) && Array.isArray(rest)) value = [...before.value, ...rest];
  else if (before.value && rest && typeof rest === "object") value = { ...before.value, ...rest };
  const whole = typeof value === "string" && value.length + (before.offset ?? 0) >= before.size && !before.offset;
  return whole ? value : { ...before, value };
}
