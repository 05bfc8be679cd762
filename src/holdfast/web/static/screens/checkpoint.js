/** One checkpoint: its state, its conversation, its files, tasks, ledger entries and record. */

import * as actions from "../actions.js";
import { get, isAbort, url } from "../api.js";
import { h } from "../dom.js";
import { changedPaths, drawFileLines, drawMessage, fileStatus, text } from "../edits.js";
import * as f from "../format.js";
import { icon } from "../icons.js";
import { errorBox } from "../list.js";
import { button, chip, commands, empty, facts, figures, head, idLink, sessionLink, table, time } from "../parts.js";
import { link, literal } from "../router.js";
import { ValueTree } from "../values.js";
import { drawEffect } from "./effects.js";

const SHOWN = ["execution_state", "agent_context"]; // parts that the state tab shows
const TABS = [["state", "State"], ["talk", "Talk"], ["files", "Files"], ["tasks", "Tasks"], ["ledger", "Ledger"],
  ["meta", "Meta"]];

export default class CheckpointScreen {
  constructor(app, params) {
    this.app = app;
    this.id = params.id;
    this.tab = params.tab ?? "state";
    this.checkpoint = null;
    this.error = null;
    this.tabs = {};
    this.control = new AbortController();
    this.q = "";
  }

  title() {
    return this.checkpoint ? `${this.checkpoint.step_name || "Checkpoint"} ${this.checkpoint.short_id}`
      : "Checkpoint";
  }

  accepts(params) {
    if (params.id !== this.id) return false;
    this.tab = params.tab ?? "state";
    this.loadTab();
    return true;
  }

  close() {
    this.control.abort();
  }

  async start() {
    try {
      this.checkpoint = await get(`checkpoints/${literal(this.id)}`, {}, this.control.signal);
      this.error = null;
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    }
    this.loadTab();
  }

  refresh() {
    if (!this.checkpoint || this.error) this.start();
    else this.reload();
  }

  async reload() {
    try {
      this.checkpoint = await get(`checkpoints/${literal(this.id)}`, {}, this.control.signal);
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    }
    this.app.redraw();
  }

  hear(event) {
    if (event.kind === "operation" || event.kind === "approval") this.reload();
  }

  async loadTab() {
    const { tab } = this;
    this.app.redraw();
    requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(".tabs [aria-selected=true]")
      ?.scrollIntoView({ block: "nearest", inline: "nearest" })));
    const loaders = { state: () => this.loadState(), talk: () => this.loadTalk(), files: () => this.loadFiles(""),
      tasks: () => this.loadTasks() };
    if (!this.checkpoint || this.tabs[tab] || !loaders[tab]) return;
    this.tabs[tab] = { busy: true };
    try {
      this.tabs[tab] = await loaders[tab]();
    } catch (error) {
      if (isAbort(error)) return;
      this.tabs[tab] = { error };
    }
    this.app.redraw();
  }

  read(path, query = {}) {
    return get(`checkpoints/${literal(this.id)}/${path}`, query, this.control.signal);
  }

  async loadState() {
    const [state, context, diff] = await Promise.all([
      this.read("state", { part: "execution_state", depth: 4, text: 500 }),
        this.read("state", { part: "agent_context", depth: 4, text: 500 }),
      this.checkpoint.parent_id ? get("diff",
        { b: JSON.stringify(this.checkpoint.checkpoint_id), part: "state", limit: 500 }, this.control.signal)
      .catch((error) => ({ edits: [], error })) : { edits: [] },
    ]);
    if (isAbort(diff.error)) throw diff.error;
    const tree = (part, answer) => new ValueTree(this.app,
      { ref: this.checkpoint.checkpoint_id, part, value: answer.value,
        changed: changedPaths(diff.edits ?? [], part) });
    return { trees: { execution_state: tree("execution_state", state),
        agent_context: tree("agent_context", context) }, edits: diff.edits ?? [], diffError: diff.error,
      lit: litOf(diff), found: null };
  }

  async loadTalk() {
    const answer = await this.read("messages", { tail: true, limit: 60 });
    return { ...answer };
  }

  async moreTalk() {
    const talk = this.tabs.talk;
    const first = talk.messages[0]?.index ?? 0;
    const from = Math.max(0, first - 60);
    try {
      const answer = await this.read("messages", { limit: first - from, ...(from > 0 && { after: from }) });
      talk.messages = [...answer.messages.filter((one) => one.index < (talk.messages[0]?.index ?? first)), ...talk.messages];
    } catch (error) {
      if (!isAbort(error)) this.app.toast(error.message);
    }
    this.app.redraw();
  }

  async loadFiles(under) {
    const [answer, diff] = await Promise.all([
      this.read("files", { under: under && JSON.stringify(under), limit: 500 }),
      this.tabs.files?.changes ?? (this.checkpoint.parent_id
        ? get("diff", { b: JSON.stringify(this.checkpoint.checkpoint_id), part: "files" }, this.control.signal)
        .then((one) => one.changes ?? []).catch(() => []) : []),
    ]);
    return { under, ...answer, changes: diff, open: null };
  }

  async openFolder(under) {
    try {
      this.tabs.files = await this.loadFiles(under);
    } catch (error) {
      this.app.toast(error.message);
    }
    this.app.redraw();
  }

  async openFile(entry, asDiff) {
    const files = this.tabs.files;
    files.open = { path: entry.path, busy: true };
    this.app.redraw();
    try {
      const path = JSON.stringify(entry.path);
      const answer = asDiff ? await get("diff/file",
        { a: JSON.stringify(this.checkpoint.parent_id), b: JSON.stringify(this.checkpoint.checkpoint_id), path },
        this.control.signal) : await this.read("text", { path });
      files.open = { path: entry.path, asDiff, answer };
    } catch (error) {
      if (isAbort(error)) return;
      files.open = { path: entry.path, error };
    }
    this.app.redraw();
    requestAnimationFrame(() => document.getElementById("open-file")?.scrollIntoView({ block: "nearest" }));
  }

  async loadTasks() {
    return { value: await this.read("state", { part: "tasks", depth: 4, text: 500 }) };
  }

  search(q) {
    this.q = q;
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const state = this.tabs.state;
      if (!state?.trees) return;
      try {
        const found = q ? await this.read("search", { q: JSON.stringify(q), limit: 50 }) : null;
        if (q !== this.q) return; // an answer to what was typed before
        state.found = found;
      } catch (error) {
        if (!isAbort(error)) this.app.toast(error.message);
      }
      this.app.redraw();
    }, 200);
    this.app.redraw();
  }

  keys() {
    const { app, checkpoint } = this;
    const goTab = (name) => app.go(link.checkpoint(this.id, name));
    const on = (run) => () => checkpoint && run(checkpoint);
    return [
      ...TABS.map(([name, label], index) => ({ key: String(index + 1), label, run: () => goTab(name) })),
      { key: "u", label: "Parent", run: on((one) =>
          one.parent_id && app.go(link.checkpoint(one.parent_id, this.tab))) },
      { key: "b", label: "Back to the timeline",
        run: on((one) => app.go(link.session(one.session_id, one.checkpoint_id))) },
      { key: "d", label: "Diff with the parent",
        run: on((one) => one.parent_id && app.go(link.diff(one.parent_id, one.checkpoint_id))) },
      { key: "f", label: "Fork here", run: on((one) => app.act(actions.fork(app, one))) },
      { key: "r", label: "Roll the session back to here",
        run: on((one) => app.act(actions.rollback(one.session_id, one))) },
      { key: "w", label: "Restore files as of here", run: on((one) => app.act(actions.restoreFiles(one))) },
      { key: "t", label: "Tag", run: on((one) => app.act(actions.tag(one))) },
      { key: "p", label: "Pin or unpin", run: on((one) => app.act(actions.pin(one, Boolean(one.pin)))) },
      { key: "y", label: "Copy the id", run: on((one) => app.copy(one.checkpoint_id)) },
    ];
  }

  draw() {
    const { checkpoint: one, app } = this;
    if (this.error) return h("div", { class: "body", key: "checkpoint" },
      head("Checkpoint", { crumb: h("a", { href: "/" }, "Sessions") }),
      h("div", { class: "pad" }, errorBox(this.error)));
    if (!one) return h("div", { class: "body", key: "checkpoint" }, head("Checkpoint"),
      h("p", { class: "pad muted" }, "Reading…"));
    const crumb = [h("a", { href: "/" }, "Sessions"), " / ",
      h("a", { href: link.session(one.session_id, one.checkpoint_id) }, one.session_id)];
    const under = h("div", { class: "line wrap small muted" }, h("code", null, one.short_id), time(one.created_at),
      h("span", null, one.agent_id), one.tags.map((name) => h("span", { class: "chip accent", key: name }, name)),
      one.pin && h("span", { class: "chip" }, "pinned"));
    return h("div", { class: "body", key: "checkpoint" },
      head(`${one.step_index ?? ""} ${one.step_name || "Checkpoint"}`, { crumb, under, actions: [
        one.parent_id && h("a", { class: "button", href: link.diff(one.parent_id, one.checkpoint_id) }, icon("diff"),
          "Diff", h("kbd", { "aria-hidden": "true" }, "d")),
        button("Fork", () => app.act(actions.fork(app, one)), { symbol: "fork", key: "f" }),
          button("Roll back", () => app.act(actions.rollback(one.session_id, one)), { symbol: "back", key: "r" }),
        button("", () => app.act(actions.tag(one)), { symbol: "tag", "aria-label": "Tag", title: "Tag (t)" }),
          button("", () => app.act(actions.pin(one, Boolean(one.pin))),
            { symbol: "pin", "aria-label": one.pin ? "Unpin" : "Pin", title: "Pin (p)" })] }),
      one.state_error && h("div", { class: "banner", role: "alert" }, one.state_error),
      one.damage.map((said) => h("div", { class: "banner", role: "alert", key: said },
          `This checkpoint is whole, but something it refers to is not: ${said}`)),
      h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the checkpoint" },
        TABS.map(([name, label]) =>
        h("a", { key: name, role: "tab", id: `tab-${name}`, href: link.checkpoint(this.id, name),
            "aria-selected": String(name === this.tab), "aria-controls": "panel" }, label, " ", this.countOf(name)))),
      h("div", { class: "scroll", role: "tabpanel", id: "panel", "aria-labelledby": `tab-${this.tab}`,
          tabindex: "0" }, h("div", { class: "stack", key: this.tab }, this.drawTab())));
  }

  countOf(name) {
    const one = this.checkpoint;
    const count = name === "ledger" ? one.effects.length : name === "files" ? (one.files?.files ?? 0) : 0;
    return count > 0 ? h("span", { class: "muted small num" }, f.count(count)) : null;
  }

  drawTab() {
    const data = this.tabs[this.tab];
    if (this.tab === "meta") return this.drawMeta();
    if (this.tab === "ledger") return this.drawLedger();
    if (!data || data.busy) return h("p", { class: "muted" }, "Reading…");
    if (data.error) return errorBox(data.error);
    const draws = { state: () => this.drawState(data), talk: () => this.drawTalk(data),
      files: () => this.drawFiles(data), tasks: () => this.drawTasks(data) };
    return draws[this.tab]?.() ?? errorBox({ message: "There is no such part of a checkpoint." });
  }

  drawState(data) {
    const one = this.checkpoint;
    const { found } = data;
    const show = (match) => data.trees[match.part]?.reveal(match.path);
    return [
      h("div", { class: "line wrap", key: "tools" },
        h("input", { class: "input", style: { "max-width": "360px" }, type: "search", "data-search": true,
            "aria-label": "Search keys and values", placeholder: "Search keys and values", value: this.q,
            oninput: (event) => this.search(event.target.value) }),
        h("span", { class: "muted small" }, data.diffError ? `No changes can be shown. ${data.diffError.message}`
          : one.parent_id ? (data.lit ? `${f.plural(data.lit, "change")} to the parent, lit below`
            : "Equal to the parent's state") : "First checkpoint of its tree")),
      found && h("section", { class: "card", key: "found" },
        h("header", null, h("h2", null, found.found.length
            ? f.plural(found.found.length, "match", "matches") + (found.next ? " and more" : "") : "No match")),
        found.found.length > 0 && h("div", { class: "inside stack-tight" }, found.found.map((match, at) =>
          h("button", { type: "button", class: "more clip", key: at, onclick: () => show(match),
              "aria-label": `Show ${match.text_path}` }, h("span", { class: "mono" }, match.text_path), " ",
            h("span", { class: "muted" }, f.inline(match.around ?? match.value, 100)))))),
      h("section", { key: "state", "aria-label": "Execution state" }, data.trees.execution_state.draw()),
      h("section", { key: "context", "aria-label": "Agent context" }, data.trees.agent_context.draw()),
      h("div", { key: "commands" }, commands({ shell: `holdfast show ${f.shell(one.checkpoint_id)} --state`,
            python: `client.restore(${f.python(one.checkpoint_id)}).execution_state` },
          (line) => this.app.copy(line))),
    ];
  }

  drawTalk(data) {
    if (!data.messages.length) return empty("topics", "There is no conversation in this state",
      h("p", null,
        "A list of messages in a form of a known framework or provider is shown here. The State tab has every value."));
    const first = data.messages[0].index ?? 0;
    return [
      first > 0 && button(`${f.count(first)} earlier`, () => this.moreTalk(), { kind: "quiet" }),
      h("div", { key: "messages" }, data.messages.map((message) => drawMessage(message))),
      h("div", { key: "commands" },
        commands({ shell: `holdfast show ${f.shell(this.checkpoint.checkpoint_id)} --messages`,
            python: `to_transcript(client.restore(${f.python(this.checkpoint.checkpoint_id)}))` },
          (line) => this.app.copy(line))),
    ];
  }

  drawFiles(data) {
    const one = this.checkpoint;
    if (!data.snapshot) return empty("folder", "This checkpoint has no snapshot of files",
      h("p", null, "Save with a workspace, and every file is kept beside the state:"),
      h("code", { class: "block" }, "client.save(…, workspace=client.workspace(\".\"))"));
    const status = new Map(data.changes.map((change) => [change.path, change.status]));
    const parents = data.under ? data.under.split("/") : [];
    const rows = data.entries.map((entry) => ({ key: entry.path, cells: [
      h("span", { class: "line" }, icon(entry.kind === "dir" ? "folder" : "file"),
        h("button", { type: "button", class: "more",
            onclick: () => (entry.kind === "dir" ? this.openFolder(entry.path) : this.openFile(entry, false)) },
          entry.name ?? entry.path), entry.target && h("span", { class: "muted" }, `→ ${entry.target}`)),
      status.has(entry.path) ? fileStatus(status.get(entry.path)) : "",
        entry.kind === "file" ? f.bytes(entry.size) : "", h("code", { class: "muted" }, entry.mode ?? ""),
      entry.kind === "file" ? h("a", { class: "button tiny quiet", download: entry.name ?? "",
          href: url(`checkpoints/${literal(one.checkpoint_id)}/files/${literal(entry.path)}`),
          "aria-label": `Download ${entry.name ?? entry.path}` }, icon("down")) : ""] }));
    return [
      h("div", { key: "figures" }, figures([["Files", f.count(data.snapshot.files)],
            ["Size", f.bytes(data.snapshot.bytes)], ["Changed here", f.count(data.changes.length)]])),
      h("div", { class: "line wrap", key: "actions" },
        button("Restore files", () => this.app.act(actions.restoreFiles(one)), { symbol: "back", key: "w" })),
      data.changes.length > 0 && h("section", { class: "card", key: "changes" },
        h("header", null, h("h2", null, "Changed since the parent")),
        h("div", { class: "inside stack-tight" }, data.changes.slice(0, 200).map((change) =>
        h("div", { class: "line", key: change.path }, fileStatus(change.status),
          h("button", { type: "button", class: "more clip mono", onclick: () => this.openFile(change, true) },
            change.path))))),
      data.open && this.drawOpenFile(data.open),
      h("nav", { class: "line wrap", "aria-label": "Folder", key: "folder" },
        button("Workspace", () => this.openFolder(""), { kind: "tiny quiet", symbol: "folder" }),
        parents.map((name, at) => h("span", { key: at }, "/ ",
            h("button", { type: "button", class: "more",
                onclick: () => this.openFolder(parents.slice(0, at + 1).join("/")) }, name)))),
      h("div", { key: "table" }, table("Files", [["Name"], ["Change"], ["Size", "right"], ["Mode"], ["", "right"]], rows)),
      data.next && h("p", { class: "muted", key: "more" }, "The first 500 are shown."),
    ];
  }

  drawOpenFile(open) {
    const { answer } = open;
    const body = open.error ? errorBox(open.error) : open.busy ? h("p", { class: "muted" }, "Reading…")
      : open.asDiff ? drawFileLines(answer)
        : answer.is_secret ? h("p", { class: "muted" }, "This file is kept secret: its text is not shown.")
          : answer.is_binary ? h("p", { class: "muted" },
            `Binary, ${f.bytes(answer.size)}. Download it to look into it.`)
          : h("pre", { class: "block", tabindex: "0", "aria-label": open.path }, answer.text || "(empty)",
            answer.cut ? "\n…" : "");
    return h("section", { class: "card", key: "open", id: "open-file" },
      h("header", null, h("h2", { class: "grow mono" }, open.path), button("", () => {
      this.tabs.files.open = null;
      this.app.redraw();
    }, { kind: "quiet tiny", symbol: "close", "aria-label": "Close the file" })),
      h("div", { class: "inside" }, body));
  }

  drawTasks(data) {
    const tasks = data.value.value;
    const entries = Array.isArray(tasks) ? tasks.map((task, at) => [task?.name ?? task?.id ?? String(at), task])
      : Object.entries(tasks ?? {}).filter(([name]) => name !== "$type");
    if (!entries.length) return empty("runs", "No tasks were saved with this checkpoint",
      h("p", null, "A run keeps its progress as tasks:"),
      h("code", { class: "block" }, "for task in run.tasks(\"files\", names): …"));
    return table("Tasks", [["Task"], ["Status"], ["Detail"]],
      entries.map(([name, task]) => [h("span", { class: "mono" }, name),
          task?.status ? chip(task.status) : typeof task === "string" ? chip(task)
            : Number.isInteger(task?.total) ? chip(`${task.completed} of ${task.total}`, task.completed === task.total ? "good" : "wait") : "",
          h("code", { class: "muted" }, Array.isArray(task?.current) && Number.isInteger(task.total)
            ? task.current.map((one) => f.inline(one, 80)).join(", ") : f.inline(task, 200))]));
  }

  drawLedger() {
    const { effects, traces } = this.checkpoint;
    if (!effects.length && !traces?.length) return empty("effects", "This checkpoint holds no result of an effect",
      h("p", null, "Effects of the whole store are on the Effects screen."),
      h("a", { href: "/effects" }, "Show effects"));
    return [effects.map((effect) => drawEffect(effect, this.app)),
      (traces ?? []).map((trace, at) => h("section", { class: "card", key: `trace-${at}` },
      h("header", null, h("h2", { class: "grow" }, `Sub-agent ${trace.subagent_type ?? ""}`),
        chip(trace.success === false ? "failed" : trace.ended_at ? "done" : "running")),
      h("div", { class: "inside stack-tight" }, h("div", { class: "said" }, text(trace.prompt ?? "")),
        (trace.tool_calls ?? []).map((call, index) =>
          h("div", { class: "line", key: index }, chip(call.failed ? "failed" : "done"),
            h("code", null, call.name)))))) ];
  }

  drawMeta() {
    const one = this.checkpoint;
    const keep = facts([
      ["Checkpoint", h("code", null, one.checkpoint_id)], ["Session", sessionLink(one.session_id)],
        ["Agent", one.agent_id], ["Parent", one.parent_id && idLink(one.parent_id)],
        ["Tree", h("code", null, one.tree_id)],
      ["Sequence", f.count(one.sequence)], ["Step", `${one.step_index ?? ""} ${one.step_name ?? ""}`],
        ["Framework", one.framework], ["Nodes", (one.nodes ?? []).join(", ")], ["Saved", f.dateTime(one.created_at)],
        ["Expires", one.expires_at && f.dateTime(one.expires_at)],
      ["Handed to", one.handoff_target], ["Contract", one.handoff_schema], ["App version", one.app_version],
        ["State version", String(one.state_version)], ["State size", f.bytes(one.logical_bytes)],
        ["Record version", String(one.schema_version)], ["Checksum", h("code", null, one.checksum)]]);
    return [
      h("div", { key: "facts" }, keep),
      one.children?.length > 0 && h("p", { key: "children" }, h("span", { class: "muted" }, "Followed by "),
        one.children.map((child) => h("span", { key: child.checkpoint_id }, idLink(child.checkpoint_id),
            ` (${child.session_id}) `))),
      h("section", { class: "stack-tight", key: "metadata" }, h("h2", null, "Metadata"),
        h("pre", { class: "block", tabindex: "0", "aria-label": "Metadata" }, text(one.metadata, 20_000))),
      h("div", { key: "commands" }, commands({ shell: `holdfast show ${f.shell(one.checkpoint_id)} --json`,
            python: `client.get(${f.python(one.checkpoint_id)})` }, (line) => this.app.copy(line))),
    ];
  }
}

/** How many differences the state tab shows; if there are more than were read, all of the state. */
function litOf(diff) {
  const edits = diff.edits ?? [];
  const rest = (diff.edits_total ?? edits.length) - edits.length;
  return rest + edits.filter((edit) => SHOWN.includes(edit.path[0])).length;
}
