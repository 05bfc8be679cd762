/** Handoffs to agents, and who took them. */

import { h } from "../dom.js";
import * as f from "../format.js";
import { chip, commands, empty, idLink, sessionLink, table, time } from "../parts.js";
import { withQuery } from "../router.js";
import { Pages } from "./pages.js";

export default class Inbox extends Pages {
  constructor(app, _params, query) {
    super(app, "inbox", "handoffs");
    this.agent = query.get("agent") ?? "";
    this.all = query.get("all") === "1";
  }

  title() {
    return "Inbox";
  }

  query() {
    return { agent: this.agent && JSON.stringify(this.agent), all: this.all };
  }

  hear(event) {
    if (event.kind !== "checkpoint" || event.data.checkpoint?.handoff_target) super.hear(event);
  }

  keys() {
    return [];
  }

  draw() {
    const change = () => {
      this.app.replace(withQuery({ agent: this.agent, all: this.all ? "1" : "" }));
      this.load();
    };
    const choose = (event) => {
      this.agent = event.target.value;
      change();
    };
    const toggle = () => {
      this.all = !this.all;
      change();
    };
    const agents = this.answer?.agents ?? [];
    const toolbar = h("div", { class: "toolbar" },
      h("select", { class: "input", "aria-label": "Agent", value: this.agent, onchange: choose },
        h("option", { value: "" }, "Every agent"),
        [...new Set([...agents, this.agent])].filter(Boolean)
        .map((one) => h("option", { value: one, key: one }, one))),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: this.all, onchange: toggle }),
        "Also claimed and taken up"));
    const rows = this.rows.map((one) => ({ key: one.handoff_id, cells: [
      chip(one.status), idLink(one.handoff_id, one.checkpoint?.step_name || one.short_id),
        h("span", null, one.from_agent_id, h("span", { class: "muted" }, " → "), one.target_agent_id),
        sessionLink(one.session_id), one.schema ?? "",
      one.by ? h("span", null, one.by, " ", time(one.since, "muted small")) : "", time(one.offered_at, "muted")] }));
    return this.drawPage("Inbox", { toolbar,
        under: h("p", { class: "small muted" },
          "Work that one agent handed to another. Exactly one may claim it.") }, this.rows.length
      ? [h("div", { key: "table" }, table("Handoffs",
            [["Status"], ["Handoff"], ["From → to"], ["Session"], ["Contract"], ["Claimed by"], ["Offered"]], rows)),
        h("div", { key: "commands" },
          commands({ shell: `holdfast inbox ${f.shell(this.agent || this.rows[0].target_agent_id)}`,
              python: `client.inbox(${f.python(this.agent || this.rows[0].target_agent_id)})` },
            (line) => this.app.copy(line)))]
      : empty("inbox", this.agent ? "Nothing waits for this agent" : "No handoff is open",
        h("p", null, "An agent hands a checkpoint to another one:"),
        h("code", { class: "block" }, "client.handoff(checkpoint_id, target_agent_id=\"approval-agent\")")));
  }
}
