/** The command palette: places, actions of this screen, sessions, tags and checkpoints. */

import { get, isAbort } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { link } from "./router.js";

export class Palette {
  constructor(app) {
    this.app = app;
    this.query = "";
    this.selected = 0;
    this.found = [];
    this.search = null;
  }

  options() {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (label) => words.every((word) => label.toLowerCase().includes(word));
    const actions = this.app.screenKeys().filter((one) => !one.hidden)
      .map((one) => ({ label: one.label, hint: one.key, symbol: "keys", run: one.run }));
    const places = this.app.places().map((one) =>
      ({ label: one.label, hint: "Go to", symbol: one.symbol, run: () => this.app.go(one.href) }));
    return [...[...actions, ...places].filter((one) => fits(one.label)), ...this.found];
  }

  async type(text) {
    this.query = text;
    this.selected = 0;
    this.search?.abort();
    if (text.trim() === "") this.found = [];
    else {
      this.search = new AbortController();
      try {
        const answer = await get("search", { q: JSON.stringify(text.trim()), limit: 12 }, this.search.signal);
        const to = (href) => () => this.app.go(href);
        this.found = [
          ...(answer.sessions ?? []).map((id) => ({ label: id, hint: "Session", symbol: "sessions",
                run: to(link.session(id)) })),
          ...(answer.tags ?? []).map((tag) => ({ label: tag.name, hint: "Tag", symbol: "tag",
                run: to(link.checkpoint(tag.checkpoint_id)) })),
          ...(answer.checkpoints ?? []).map((one) => ({
            label: `${one.short_id} ${one.step_name ?? ""}`, hint: one.session_id, symbol: "log",
              run: to(link.checkpoint(one.checkpoint_id)),
          })),
        ];
      } catch (error) {
        if (isAbort(error)) return;
        this.found = [];
      }
    }
    this.app.redraw();
  }

  onKey(event) {
    const all = this.options();
    if (event.key === "ArrowDown") this.selected = Math.min(this.selected + 1, all.length - 1);
    else if (event.key === "ArrowUp") this.selected = Math.max(this.selected - 1, 0);
    else if (event.key === "Enter") this.choose(all[this.selected]);
    else return;
    event.preventDefault();
    this.app.redraw();
    queueMicrotask(() => document.getElementById(`choice-${this.selected}`)?.scrollIntoView({ block: "nearest" }));
  }

  choose(option) {
    if (!option) return;
    this.app.closeSheet();
    option.run();
  }

  draw() {
    const all = this.options();
    return h("div", { class: "sheet" },
      h("input", {
        type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "choices",
          "aria-label": "Search for a session, a checkpoint or an action",
        "aria-activedescendant": all.length ? `choice-${this.selected}` : undefined, "aria-autocomplete": "list",
          autocomplete: "off", spellcheck: "false",
        placeholder: "Session, tag, checkpoint or action", value: this.query, autofocus: true,
        oninput: (event) => this.type(event.target.value), onkeydown: (event) => this.onKey(event),
      }),
      h("div", { class: "options", id: "choices", role: "listbox", "aria-label": "Results" },
        all.map((option, index) => h("div", {
          key: index, id: `choice-${index}`, role: "option", class: "option",
            "aria-selected": String(index === this.selected), onclick: () => this.choose(option),
        }, icon(option.symbol), h("span", { class: "clip grow" }, option.label),
          h("span", { class: "muted small clip" }, option.hint)))),
      all.length === 0 && h("p", { class: "pad muted" },
        "Nothing matches. Type a part of a session's name, a tag, or the last digits of a checkpoint's id."));
  }
}
