/** Topics, how far their groups are, and what was given up. */

import { h } from "../dom.js";
import * as f from "../format.js";
import { chip, commands, empty, table, time } from "../parts.js";
import { link } from "../router.js";
import { Pages } from "./pages.js";

export const GROUP_SECONDS = 5; // an acknowledgement is no save, so no event tells of it

/** The groups of a topic: what waits for each, since when, and what it gave up. */
export function drawGroups(topic) {
  if (topic.groups.length === 0) return h("p", { class: "muted" }, "No group consumes it.");
  return table(`Groups of ${topic.topic}`, [["Group"], ["Waiting", "right"], ["Oldest open"], ["In flight", "right"],
    ["Dead", "right"], ["Contract"], ["Seen"]], topic.groups.map((one) => ({ key: one.group, cells: [
      one.group, one.waiting > 0 ? chip(f.count(one.waiting), "wait") : "0",
        one.oldest ? time(one.oldest) : h("span", { class: "muted" }, "–"), f.count(one.in_flight),
      one.dead > 0 ? chip(f.count(one.dead), "bad") : "0", one.contract ?? "",
      h("span", { class: "line" }, time(one.last_seen, "muted"), !one.is_live && chip("not live", ""))] })));
}

export default class Topics extends Pages {
  constructor(app) {
    super(app, "topics", "topics");
    this.seconds = GROUP_SECONDS;
  }

  title() {
    return "Topics";
  }

  keys() {
    return [...this.moveKeys(), { key: "Enter", label: "Open the topic",
        run: () => this.rows[this.current] && this.app.go(link.topic(this.rows[this.current].topic)) }];
  }

  draw() {
    return this.drawPage("Topics", { under: h("p", { class: "small muted" },
          "Messages between programs. Each group gets every message once.") },
      this.rows.length ? [this.rows.map((one, at) => this.drawTopic(one, at)),
        h("div", { key: "commands" }, commands({ shell: "holdfast topics", python: "client.topics()" },
            (line) => this.app.copy(line)))]
      : empty("topics", "No topic yet", h("p", null, "A topic is there with its first message:"),
        h("code", { class: "block" }, "client.publish(\"drafts\", {\"name\": \"roots\"})")));
  }

  drawTopic(one, at) {
    const dead = one.groups.reduce((sum, group) => sum + group.dead, 0);
    return h("article", { class: `card ${at === this.current ? "is-current" : ""}`, key: `topic ${one.topic}`,
        id: `row-${at}`, "aria-label": `Topic ${one.topic}`, onclick: () => {
      this.current = at;
      this.app.redraw();
    } },
    h("header", null, h("h2", { class: "grow clip" }, h("a", { href: link.topic(one.topic), title: one.topic },
          one.topic)), dead > 0 && chip(`${f.count(dead)} dead`, "bad"),
      h("span", { class: "small muted num" }, f.plural(one.messages, "message")),
      one.newest && time(one.newest, "small muted")),
    h("div", { class: "inside" }, drawGroups(one)));
  }
}
