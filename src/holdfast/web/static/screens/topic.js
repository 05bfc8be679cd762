/** One topic: its groups, the messages that they have given up, and its messages, oldest first. */

import { get, isAbort } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { card, chip, commands, empty, figures, idLink, sessionLink, table, time } from "../parts.js";
import { literal } from "../router.js";
import { ValueTree } from "../values.js";
import { Pages } from "./pages.js";
import { drawGroups, GROUP_SECONDS } from "./topics.js";

export default class Topic extends Pages {
  constructor(app, params) {
    super(app, `topics/${literal(params.topic)}/messages`, "messages");
    this.topic = params.topic;
    this.status = null;
    this.dead = null;
    this.seconds = GROUP_SECONDS;
    /** The value of each message that is drawn: a message never changes. */
    this.trees = new Map();
  }

  title() {
    return this.topic;
  }

  async load() {
    const address = `topics/${literal(this.topic)}`;
    try {
      [this.status, this.dead] = await Promise.all([get(address, {}, this.control.signal),
        get(`${address}/dead`, {}, this.control.signal)]);
    } catch (error) {
      if (!isAbort(error)) this.error = error;
      this.app.redraw();
      return;
    }
    await super.load();
  }

  keys() {
    return this.moveKeys();
  }

  draw() {
    const { status } = this;
    return this.drawPage(this.topic, { crumb: h("a", { href: "/topics" }, "Topics") }, status && [
      h("div", { key: "figures" }, figures([["Messages", f.count(status.messages)],
          ["Oldest", status.oldest ? time(status.oldest) : "–"],
          ["Newest", status.newest ? time(status.newest) : "–"]])),
      h("div", { key: "groups" }, card("Groups", null, drawGroups(status))),
      this.dead.total > 0 && h("div", { key: "dead" }, this.drawDead()),
      this.rows.length ? h("ol", { class: "stack-tight", key: "messages", "aria-label": "Messages, oldest first" },
        this.rows.map((one, at) => this.drawMessage(one, at)))
      : h("div", { key: "none" }, empty("topics", "No message is kept",
          h("p", null, "Those that were published are over. Publish another one:"),
          h("code", { class: "block" }, `holdfast publish ${f.shell(this.topic)} FILE`))),
      h("div", { key: "commands" }, commands({ shell: `holdfast messages ${f.shell(this.topic)}`,
          python: `list(client.messages(${f.python(this.topic)}))` }, (line) => this.app.copy(line)))]);
  }

  drawDead() {
    const first = this.dead.dead[0];
    const shown = this.dead.dead.length;
    return card("Dead messages", chip(f.count(this.dead.total), "bad"),
      table("Dead messages", [["Message"], ["Group"], ["Attempts", "right"], ["Last reason"], ["Since"]],
        this.dead.dead.map((one) => ({ key: `${one.group} ${one.message_id}`, cells: [
          idLink(one.message_id), one.group, f.count(one.attempts), f.inline(one.reasons.at(-1) ?? "", 400),
            time(one.since, "muted")] }))),
      this.dead.total > shown && h("p", { class: "small muted" }, `The last ${f.count(shown)} are shown.`),
      h("p", { class: "small muted" }, "Once its cause is repaired, deliver a message again. Its effects happen again then."),
      commands({ shell: `holdfast redeliver ${f.shell(this.topic)} ${f.shell(first.group)} ${first.message_id}`,
          python: `client.redeliver(${f.python(this.topic)}, ${f.python(first.group)}, ${f.python(first.message_id)})` },
        (line) => this.app.copy(line)));
  }

  drawMessage(one, at) {
    const current = { class: `card ${at === this.current ? "is-current" : ""}`, key: one.cursor, id: `row-${at}`,
        onclick: () => {
      this.current = at;
      this.app.redraw();
    } };
    if (one.damaged) return h("li", current, h("div", { class: "inside line wrap" }, chip("damaged"),
        h("span", { class: "small" }, one.damaged)));
    return h("li", current,
      h("header", null, idLink(one.message_id), one.key !== null && chip(`key ${one.key}`, "", one.key),
        one.contract && chip(one.contract, "info"),
        h("span", { class: "grow clip small" }, one.agent_id, one.session_id !== null
          && h("span", { class: "muted" }, " in ", sessionLink(one.session_id))),
        time(one.published_at, "small muted")),
      h("div", { class: "inside" }, this.treeOf(one).draw()));
  }

  treeOf(message) {
    const id = message.message_id;
    if (!this.trees.has(id)) this.trees.set(id, new ValueTree(this.app,
      { ref: id, part: "execution_state", label: "value", value: message.value }));
    return this.trees.get(id);
  }
}
