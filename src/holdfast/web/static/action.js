/** Actions: a sheet with what will happen, a form, and the lines that do the same elsewhere. */

import { post } from "./api.js";
import { h } from "./dom.js";
import { errorBox } from "./list.js";
import { button, commands } from "./parts.js";

/**
 * @typedef {{name: string, label: string, kind?: "text"|"area"|"check"|"choice"|"number", value?: any,
 *   choices?: [string, string][], hint?: string, placeholder?: string, when?: (values: any) => boolean}} Field
 * @typedef {{title: string, verb: string, about?: any, danger?: boolean, fields?: Field[],
 *   path: (values: any) => string, body: (values: any) => any,
 *   lines: (values: any) => {shell?: string, python?: string},
 *   preview?: (answer: any) => any, plan?: {path: string, apply: string}, done: (answer: any, values: any) => string,
 *   after?: (answer: any, values: any) => void}} Action
 */

/** The open sheet of one action. */
export class Sheet {
  constructor(action, app) {
    this.action = action;
    this.app = app;
    this.values = Object.fromEntries((action.fields ?? [])
      .map((field) => [field.name, field.value ?? (field.kind === "check" ? false : "")]));
    this.error = null;
    this.shown = null;
    this.busy = false;
    this.turn = 0;
    this.key = crypto.randomUUID();
    this.changed = false;
    if (action.preview) this.look();
  }

  /** Asks the server what would happen, and changes nothing. */
  async look() {
    const { action } = this;
    const turn = (this.turn += 1);
    try {
      const answer = await post(action.plan?.path ?? action.path(this.values),
        { ...action.body(this.values), dry_run: true });
      if (turn !== this.turn) return;
      this.shown = answer;
      this.error = null;
    } catch (error) {
      if (turn !== this.turn) return;
      this.shown = null;
      this.error = error;
    }
    this.app.redraw();
  }

  set(name, value) {
    this.values[name] = value;
    this.changed = true;
    this.key = crypto.randomUUID();
    clearTimeout(this.timer);
    if (this.action.plan) this.shown = null; // it is of other terms: only a plan that is shown is applied
    if (this.action.preview) this.timer = setTimeout(() => this.look(), 250);
    this.app.redraw();
  }

  async run() {
    if (this.busy || this.waits()) return;
    this.busy = true;
    this.error = null;
    this.app.redraw();
    const { action } = this;
    try {
      const answer = action.plan ? await post(action.plan.apply, { plan: this.shown.plan }, this.key)
        : await post(action.path(this.values), action.body(this.values), this.key);
      this.app.closeSheet();
      this.app.toast(action.done(answer, this.values), answer.operation?.operation_id);
      if (action.after) action.after(answer, this.values);
      else this.app.refresh();
    } catch (error) {
      // A refusal is final for its key: the next attempt is another request. An unclear failure keeps it.
      if (error.status >= 400 && error.status < 500) this.key = crypto.randomUUID();
      if (action.plan) await this.look();
      this.error = error;
    } finally {
      this.busy = false;
      this.app.redraw();
    }
  }

  /** Whether the plan that would be applied is not shown yet. */
  waits() {
    return Boolean(this.action.plan) && !this.shown;
  }

  lines() {
    try {
      return this.action.lines(this.values);
    } catch {
      return {}; // a form that is not complete yet
    }
  }

  draw() {
    const { action } = this;
    const submit = (event) => {
      event.preventDefault();
      this.run();
    };
    return h("form", { class: "sheet", onsubmit: submit },
      h("header", null, h("h2", { class: "grow", id: "sheet-title" }, action.title),
        button("", () => this.app.closeSheet(), { kind: "quiet", symbol: "close", "aria-label": "Close" })),
      h("div", { class: "inside" },
        action.about && h("div", { class: "muted" }, action.about),
        (action.fields ?? []).filter((field) => field.when?.(this.values) ?? true)
          .map((field) => this.drawField(field)),
        this.error && errorBox(this.error),
        this.shown && action.preview?.(this.shown),
        commands(this.lines(), (text) => this.app.copy(text))),
      h("footer", null, button("Cancel", () => this.app.closeSheet(), { kind: "quiet", "data-first": action.danger }),
        h("button", { type: "submit", class: "button primary", "data-first": !action.danger, disabled: this.busy || this.waits() },
          this.busy ? "Working…" : action.verb)));
  }

  drawField(field) {
    const value = this.values[field.name];
    const take = (event) => this.set(field.name, field.kind === "check" ? event.target.checked : event.target.value);
    const id = `field-${field.name}`;
    const hint = field.hint && h("span", { class: "small muted", id: `${id}-hint` }, field.hint);
    if (field.kind === "check") {
      return h("label", { class: "check", key: field.name },
        h("input", { type: "checkbox", checked: value, onchange: take }), field.label, hint);
    }
    const common = { id, class: "input", value, oninput: take, "aria-describedby": hint ? `${id}-hint` : undefined };
    let control;
    if (field.kind === "choice") control = h("select", common,
      (field.choices ?? []).map(([name, label]) => h("option", { value: name }, label)));
    else if (field.kind === "area") control = h("textarea",
      { ...common, rows: 5, spellcheck: "false", placeholder: field.placeholder });
    else control = h("input", { ...common, type: field.kind === "number" ? "number" : "text",
        placeholder: field.placeholder, autocomplete: "off" });
    return h("div", { class: "field", key: field.name }, h("label", { for: id }, field.label), control, hint);
  }
}
