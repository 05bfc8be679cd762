/** The log of operations: who changed what, with undo and redo. */

import * as actions from "../actions.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { button, chip, commands, empty, idLink, sessionLink, time } from "../parts.js";
import { Pages } from "./pages.js";

const isId = value => typeof value === "string" && /^[0-9a-f-]{20,}$/.test(value);

export default class Log extends Pages {
  constructor(app) {
    super(app, "operations", "operations");
  }

  title() {
    return "Log";
  }

  hear(event) {
    if (event.kind !== "checkpoint") super.hear(event);
  }

  undo() {
    const one = this.rows[this.current];
    if (one?.can_be_undone) this.app.act(actions.takeBack("undo", one));
    else this.app.toast(one ? "This operation cannot be undone." : "There is nothing to undo.");
  }

  keys() {
    return [...this.moveKeys(), { key: "u", label: "Undo the selected operation", run: () => this.undo() },
      { key: "U", label: "Redo what was undone last", run: () => this.app.act(actions.takeBack("redo", null)) }];
  }

  draw() {
    return this.drawPage("Log", { under: h("p", { class: "small muted" },
          "Every change but a save: who did it, and what it changed."),
        actions: [button("Undo", () => this.app.act(actions.takeBack("undo", null)), { symbol: "back" }),
          button("Redo", () => this.app.act(actions.takeBack("redo", null)), { key: "⇧U" })] },
      this.rows.length ? [h("ol", { class: "stack-tight", key: "operations" },
          this.rows.map((one, at) => this.drawOperation(one, at))),
        h("div", { key: "commands" }, commands({ shell: "holdfast op log", python: "client.operations()" },
            (line) => this.app.copy(line)))]
        : empty("log", "No operation was recorded yet",
          h("p", null, "Rollbacks, forks, tags, pins and restores appear here, and can be undone.")));
  }

  drawOperation(one, at) {
    const side = value => (isId(value) ? idLink(value)
      : h("span", { class: "mono" }, f.inline(value ?? "nothing", 60)));
    return h("li", { class: `card ${at === this.current ? "is-current" : ""}`, key: one.operation_id,
        id: `row-${at}`, onclick: () => {
      this.current = at;
      this.app.redraw();
    } },
    h("div", { class: "inside line wrap" },
      chip(one.kind, one.kind === "undo" || one.kind === "redo" ? "info" : "accent"),
        one.is_undone && chip("undone", ""), h("span", { class: "grow name" }, sessionLink(one.session_id)),
        h("span", { class: "muted small" }, one.by ?? ""), time(one.at, "muted small"),
      one.can_be_undone && button("Undo", () => this.app.act(actions.takeBack("undo", one)),
        { kind: "tiny", key: at === this.current ? "u" : undefined })),
    one.changes.length > 0 && h("ul", { class: "changes" },
      one.changes.slice(0, 12).map((change, index) =>
        h("li", { class: "line wrap small", key: index }, h("span", { class: "muted" }, change.kind),
          h("span", null, isId(change.name) ? idLink(change.name) : change.name), side(change.before),
          h("span", { class: "muted" }, "→"), side(change.after))),
      one.changes.length > 12 && h("li", { class: "muted small" }, `and ${one.changes.length - 12} more`)));
  }
}
