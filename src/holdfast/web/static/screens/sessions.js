/** All sessions, the most recently saved first. */

import { get } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { VirtualList } from "../list.js";
import { button, chip, empty, head, RUN_STATUSES, time } from "../parts.js";
import { link, withQuery } from "../router.js";

export default class Sessions {
  constructor(app, _params, query) {
    this.app = app;
    this.query = { q: query.get("q") ?? "", agent: query.get("agent") ?? "", status: query.get("status") ?? "" };
    this.unseen = new Set();
    this.list = new VirtualList({
      label: "Sessions", rowHeight: 44, redraw: app.redraw, keyOf: (row) => row.session_id,
        hrefOf: (row) => link.session(row.session_id),
      load: (offset, limit, signal) => this.load(offset, limit, signal),
      row: (row) => this.drawRow(row), open: (row) => app.go(link.session(row.session_id)),
        empty: () => this.drawEmpty(),
    });
  }

  title() {
    return "Sessions";
  }

  start() {
    requestAnimationFrame(() => document.activeElement === document.body && this.list.box?.focus());
  }

  close() {
    this.list.close();
  }

  async load(offset, limit, signal) {
    const { q, agent, status } = this.query;
    const named = { q: q && JSON.stringify(q), agent: agent && JSON.stringify(agent), status };
    const answer = await get("sessions", { ...named, offset, limit }, signal);
    this.unseen.clear();
    const known = offset + answer.sessions.length;
    return { ...answer, rows: answer.sessions, total: answer.total ?? (answer.next ? known + limit : known) };
  }

  refresh() {
    this.list.refresh();
  }

  /** Rows that are shown change in place; their order changes only when the reader asks for it. */
  hear(event) {
    const saved = event.data?.checkpoint;
    if (event.kind === "operation" || event.kind === "approval") this.list.refresh();
    if (!saved) return;
    if (this.list.total <= 0) return void this.list.refresh();
    for (const rows of this.list.pages.values()) {
      const found = rows.find((row) => row.session_id === saved.session_id);
      if (found) {
        if ((found.head?.sequence ?? 0) < saved.sequence) Object.assign(found,
          { head: { ...found.head, ...saved }, saves: saved.sequence });
        return this.app.redraw();
      }
    }
    this.unseen.add(saved.session_id);
    this.list.waiting = this.unseen.size;
    this.app.redraw();
  }

  filter(name, value) {
    this.query = { ...this.query, [name]: value };
    this.app.replace(withQuery({ [name]: value }));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.list.reset(), name === "status" ? 0 : 150);
    this.app.redraw();
  }

  mark() {
    const row = this.list.rowAt(this.list.selected);
    if (!row) return;
    if (this.marked && this.marked !== row.session_id) return this.app.go(link.compare(this.marked, row.session_id));
    this.marked = this.marked ? null : row.session_id;
    this.app.toast(this.marked ? `Marked ${row.session_id}. Press m on another session to compare them.`
      : "No session is marked.");
  }

  keys() {
    const list = this.list;
    return [
      { key: "j", label: "Next session", run: () => list.go(list.selected + 1), hidden: true },
      { key: "k", label: "Session before", run: () => list.go(list.selected - 1), hidden: true },
      { key: "Enter", label: "Open", run: () =>
        list.rowAt(list.selected) && list.options.open?.(list.rowAt(list.selected)), hidden: true },
      { key: "m", label: "Mark a session; on a second one, compare both", run: () => this.mark() },
    ];
  }

  draw() {
    const { query, list } = this;
    const filtered = query.q || query.agent || query.status;
    return h("div", { class: "body", key: "sessions" },
      head("Sessions", { under: h("p", { class: "small muted num" },
            list.total < 0 ? "Reading…" : f.plural(list.total, "session") + (filtered ? " match" : "")) }),
      h("div", { class: "toolbar", role: "search" },
        h("div", { class: "search" }, h("input",
            { class: "input", type: "search", "data-search": true, "aria-label": "Search by name",
              placeholder: "Search by name", value: query.q,
              oninput: (event) => this.filter("q", event.target.value) })),
        h("select", { class: "input", "aria-label": "Status", value: query.status,
            onchange: (event) => this.filter("status", event.target.value) },
          h("option", { value: "" }, "Any status"), RUN_STATUSES.map((one) => h("option", { value: one }, one))),
        h("input", { class: "input", "aria-label": "Agent", placeholder: "Agent", size: 12, value: query.agent,
            oninput: (event) => this.filter("agent", event.target.value) })),
      h("div", { class: "columns", "aria-hidden": "true" }, h("span", { class: "c-name" }, "Session"),
        h("span", { class: "c-agent" }, "Agent"), h("span", { class: "c-step" }, "Last step"),
        h("span", { class: "c-status" }, "Status"), h("span", { class: "c-saves cell right" }, "Saves"),
          h("span", { class: "c-age cell right" }, "Saved")),
      list.draw());
  }

  drawRow(row) {
    const last = row.head;
    return [
      h("span", { class: "cell c-name", title: row.session_id }, row.session_id || "(no name)"),
      h("span", { class: "cell c-agent dim", title: row.agent_id }, row.agent_id ?? ""),
      h("span", { class: "cell c-step dim" },
        row.damaged ?? (last ? `${last.step_index ?? ""} ${last.step_name ?? ""}` : "nothing saved yet")),
      h("span", { class: "c-status" }, row.damaged ? chip("damaged") : row.status && chip(row.status)),
      h("span", { class: "cell c-saves right dim" }, f.count(row.saves)),
      h("span", { class: "cell c-age right dim" }, time(last?.created_at)),
    ];
  }

  drawEmpty() {
    const { q, agent, status } = this.query;
    if (q || agent || status) {
      const clear = () => {
        this.query = { q: "", agent: "", status: "" };
        this.app.replace("/");
        this.list.reset();
      };
      return empty("search", "No session matches",
        h("p", null, "Names are searched by any part of them, in upper or lower case."),
        button("Show all sessions", clear));
    }
    return empty("sessions", "This store is empty",
      h("p", null, "Save a first checkpoint, or watch a demo that makes a store:"),
      h("code", { class: "block" }, "client.save(agent_id=\"me\", execution_state=state, session_id=\"run-1\")"),
        h("code", { class: "block" }, "holdfast demo --keep demo"));
  }
}
