/** The client of the HTTP API: errors as sentences, and a signal for whether the server answers. */

const BASE = "/api/v1/";

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…:]$/.test(first) ? first : `${first}.`;
}

/** A refusal of the server or a failure to reach it, in words. */
export class ApiError extends Error {
  constructor(status, body) {
    super(sentence(body?.message ?? "The server gave an answer that this page does not understand."));
    this.status = status;
    this.kind = body?.error ?? "error";
    this.next = body?.next ? sentence(body.next) : null;
  }
}

/** "live", "connecting", "offline" or "signed out"; kept by the answers of the server. */
export const connection = {
  state: "connecting",
  listeners: new Set(),
  set(state) {
    if (state === connection.state) return;
    connection.state = state;
    for (const listener of connection.listeners) listener();
  },
};

export function url(path, query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "" && one !== false) params.append(name, String(one));
    }
  }
  const text = params.toString();
  return BASE + path + (text ? `?${text}` : "");
}

async function request(address, options) {
  let response;
  try {
    response = await fetch(address, { credentials: "same-origin", redirect: "error", cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    connection.set("offline");
    throw new ApiError(0, {
      error: "offline",
      message: "The server does not answer.",
      next: "Start `holdfast ui` again. This page tries again by itself.",
    });
  }
  if (response.status === 401) {
    connection.set("signed out");
    throw new ApiError(401, {
      error: "signed_out",
      message: "The server does not know this browser.",
      next: "It was started again, or its token was used elsewhere: open the link that `holdfast ui` printed.",
    });
  }
  if (connection.state === "offline" || connection.state === "signed out") connection.set("connecting");
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) throw new ApiError(response.status, body);
  return body;
}

/** Answers a GET. An abort of `signal` rejects with AbortError. */
export function get(path, query = {}, signal = undefined) {
  return request(url(path, query), { signal, headers: { Accept: "application/json" } });
}

/** Sends a change. The same `key` sent twice is carried out once. */
export function post(path, body, key = crypto.randomUUID()) {
  return request(url(path), {
    method: "POST",
    body: JSON.stringify(body ?? {}),
    headers: { "Content-Type": "application/json", Accept: "application/json", "Idempotency-Key": key },
  });
}

export function isAbort(error) {
  return error?.name === "AbortError";
}
