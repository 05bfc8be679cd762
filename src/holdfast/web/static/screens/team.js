/** A team: who works on delegated work, and who waits for whom. */

import { get, isAbort } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { errorBox } from "../list.js";
import { chip, commands, empty, head, sessionLink, table, throttle, time } from "../parts.js";
import { link, literal } from "../router.js";

export default class Team {
  constructor(app, params) {
    this.app = app;
    this.id = params.session;
    this.team = null;
    this.error = null;
    this.control = new AbortController();
    this.reload = throttle(() => this.start(), 700);
  }

  title() {
    return this.id === undefined ? "Team" : `Team of ${this.id}`;
  }

  close() {
    this.control.abort();
  }

  async start() {
    if (this.id === undefined) return;
    try {
      this.team = await get(`team/${literal(this.id)}`, {}, this.control.signal);
      this.error = null;
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    }
    this.app.redraw();
  }

  refresh() {
    this.start();
  }

  hear() {
    this.reload();
  }

  keys() {
    return [];
  }

  draw() {
    const crumb = this.id === undefined ? null : [h("a", { href: "/" }, "Sessions"), " / ", sessionLink(this.id)];
    return h("div", { class: "body", key: "team" }, head(this.title(), { crumb }),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Team" },
        h("div", { class: "stack" }, this.drawTeam())));
  }

  drawTeam() {
    if (this.id === undefined) {
      const open = (event) => {
        event.preventDefault();
        const name = event.target.elements.session.value;
        if (name) this.app.go(link.team(name));
      };
      return [h("form", { class: "line wrap", onsubmit: open, key: "form" },
          h("input", { class: "input", name: "session", style: { "max-width": "360px" }, "data-search": true,
              "aria-label": "Session", placeholder: "Name of a session that delegates work" }),
          h("button", { type: "submit", class: "button primary" }, "Show its team")),
        empty("team", "Whose team?", h("p", null,
            "Name the session that delegated work, or open a session and choose Team."))];
    }
    if (this.error) return errorBox(this.error);
    if (!this.team) return h("p", { class: "muted" }, "Reading…");
    const { members, waits = [], unserved = [], origins = [] } = this.team;
    const wait = (one) => `${one.kind} on ${(one.targets ?? []).map((target) => f.inline(target, 60)).join(", ")}`;
    return [
      origins.length > 0 && h("p", { class: "muted", key: "origins" }, "Delegated by ",
        origins.map((one) => h("span", { key: one }, sessionLink(one), " "))),
      unserved.length > 0 && h("div", { class: "note wait", key: "unserved" },
        `${f.plural(unserved.length, "wait")} for work that no live worker has.`),
      members.length === 0 ? empty("team", "This session delegated nothing",
        h("p", null, "A run delegates work to other agents and joins their answers:"),
        h("code", { class: "block" }, "run.delegate(\"reviewer\", task)"))
        : h("div", { key: "members" }, table("Members",
            [["Session"], ["Agent"], ["Status"], ["Held by"], ["Since"], ["Waits"]],
            members.map((one) => ({ key: `${one.session_id} ${one.handoff_id}`, cells: [
          h("span", { class: "line", style: { "padding-left": `${Math.min(8, one.depth ?? 0) * 20}px` } },
            sessionLink(one.session_id)), one.agent_id ?? "", chip(one.status), one.holder ?? "",
          time(one.since, "muted"), (one.waits ?? []).map(wait).join("; ")] })))),
      waits.length > 0 && h("section", { class: "stack-tight", key: "waits" }, h("h2", null, "Who waits"),
        h("ul", { class: "stack-tight" }, waits.map((one, at) =>
            h("li", { class: "line wrap", key: at }, sessionLink(one.session_id),
              h("span", { class: "muted" }, wait(one)), time(one.since, "muted small"))))),
      h("div", { key: "commands" }, commands({ shell: `holdfast team ${f.shell(this.id)}`,
            python: `client.team(${f.python(this.id)})` }, (line) => this.app.copy(line))),
    ];
  }
}
