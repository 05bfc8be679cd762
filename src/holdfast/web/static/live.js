/**
 * Events of the server, one connection for all tabs.
 *
 * The visible tab that holds the lock reads the stream and passes each event on through a
 * BroadcastChannel. A hidden tab has no connection; it reads everything again once it is visible.
 */

import { connection, url } from "./api.js";

const SILENCE_MS = 40_000; // the server sends a comment every 15 s
const RETRY_MS = [500, 1000, 2000, 4000];
const listeners = new Set();
const channel = new BroadcastChannel("holdfast-events");
let stopped = null;
let cursor = "";

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function deliver(event) {
  for (const listener of listeners) listener(event);
}

function publish(event) {
  deliver(event);
  channel.postMessage(event);
}

/** Begins to listen, with what happened since the cursor of the status that the page has read. */
export function start(since = "") {
  cursor = since;
  channel.onmessage = (message) => {
    if (message.data?.kind === "state") connection.set(message.data.data);
    else if (message.data?.kind === "question") {
      if (leads) channel.postMessage({ kind: "state", data: connection.state });
    } else deliver(message.data);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : resume(true)));
  if (!document.hidden) resume(!since);
}

let leads = false;

function pause() {
  stopped?.abort();
  stopped = null;
}

function resume(stale) {
  pause();
  const mine = new AbortController();
  stopped = mine;
  if (stale) deliver({ kind: "resync", data: null });
  channel.postMessage({ kind: "question", data: null });
  const lead = async () => {
    leads = true;
    await follow(mine.signal).finally(() => (leads = false));
  };
  const wanted = navigator.locks?.request("holdfast-events", { signal: mine.signal }, lead) ?? lead();
  wanted.catch(() => undefined); // hidden while it waited
}

async function follow(signal) {
  for (let failures = 0; !signal.aborted; failures += 1) {
    const state = await readStream(signal, () => {
      if (failures > 0) publish({ kind: "resync", data: null });
      failures = 0;
      setState("live");
    });
    if (signal.aborted) return;
    setState(state);
    await sleep(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)], signal);
  }
}

function setState(state) {
  connection.set(state);
  channel.postMessage({ kind: "state", data: state });
}

/** Reads one stream to its end, and returns why it ended. */
async function readStream(signal, opened) {
  const silent = new AbortController();
  const stop = () => silent.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const headers = { Accept: "text/event-stream", ...(cursor && { "Last-Event-ID": cursor }) };
    const response = await fetch(url("events"), { headers, signal: silent.signal, cache: "no-store" });
    if (response.status === 401) return "signed out";
    if (response.status === 400 || response.status === 410) cursor = ""; // an older cursor: begin with the present
    if (!response.ok || !response.body) return "offline";
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "connecting";
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      if (connection.state !== "live") setState("live"); // one request may have failed meanwhile
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      for (const block of blocks) readEvent(block);
    }
  } catch {
    return "offline";
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

function readEvent(block) {
  let kind = "message";
  let data = "";
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("id:")) cursor = line.slice(3).trim();
    else if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5);
  }
  if (!data) return; // a comment: the connection is alive
  try {
    publish({ kind, data: JSON.parse(data) });
  } catch {
    // Not JSON: the next resync corrects what it would have said.
  }
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve(null);
    });
  });
}
