// The page of the console: which page is shown, and the samples that bring it up to date.

import { POINTS, h, note, samples } from "./elements.js";
import { PAGES, fail } from "./pages.js";
import { keep, request, takeToken, token, whenRefused } from "./requests.js";

const PARENTS = { "/topic": "/topics", "/message": "/topics" };
const main = document.getElementById("main");
const state = document.getElementById("state");
const pause = document.getElementById("pause");

let view = null; // the page that is shown
let shown = 0; // the number of pages shown so far
let paused = false;
let stream = null; // ends the stream of samples
let missed = false; // whether there may have been samples that were not read

async function refresh(of, now = true) {
  if (of !== view || (!now && performance.now() < of.due)) return;
  if (of.busy) {
    of.again = true;
    return;
  }
  of.busy = true;
  of.due = performance.now() + (of.every ?? 0);
  try {
    await of.refresh();
    if (of === view) main.querySelector(":scope > .error")?.remove();
  } catch (error) {
    if (of === view && token) fail(error);
  } finally {
    of.busy = false;
  }
  if (of.again) {
    of.again = false;
    refresh(of, false);
  }
}

function show() {
  if (!token) {
    askForToken();
    return;
  }
  const [path, query] = (location.hash.slice(1) || "/").split(/\?(.*)/s);
  const make = PAGES[path];
  const isFirst = shown === 0;
  shown += 1;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${PARENTS[path] ?? path}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!make) {
    view = null;
    main.replaceChildren(h("h1", null, "There is no such page"));
    document.title = "No such page - Forebay";
    return;
  }
  view = make(Object.fromEntries(new URLSearchParams(query ?? "")));
  document.title = `${view.title} - Forebay`;
  main.replaceChildren(h("h1", null, view.title), ...view.nodes);
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  refresh(view);
}

function askForToken() {
  view = null;
  stream?.abort();
  const use = (event) => {
    event.preventDefault();
    keep(new FormData(event.target).get("token").trim());
    show();
    listen();
  };
  main.replaceChildren(h("h1", null, "A token is needed"), note("forebay console printed it, as a part of the address."),
    h("form", { onsubmit: use }, h("label", null, "Token", h("input", { name: "token", type: "password", required: true, autocomplete: "off" })),
      h("button", { class: "main" }, "Continue")));
  say("lost", "no token");
}

// --- samples ------------------------------------------------------------------------------------

function say(name, text) {
  state.dataset.state = name;
  if (state.textContent !== text) state.textContent = text;
}

function take(sample) {
  if (sample.error) {
    say("lost", sample.error);
    return;
  }
  say("live", "live");
  // The first one has no rates.
  if (sample.messages_per_second !== null) samples.push(sample);
  if (samples.length > POINTS) samples.shift();
  view?.sample?.(sample);
  if (sample.changed && view) refresh(view, false);
}

// Samples are read by fetch: an EventSource cannot send the token.
async function read(signal) {
  const answer = await request("api/events", { signal });
  if (missed && view) refresh(view, false);
  missed = false;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) take(JSON.parse(data.slice(6)));
    }
  }
}

async function listen() {
  stream?.abort();
  const mine = new AbortController();
  stream = mine;
  while (stream === mine && token && !paused && !document.hidden) {
    try {
      await read(mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
    } finally {
      missed = true;
    }
    if (token) say("lost", "connection lost");
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Continue" : "Pause";
  if (paused) {
    stream?.abort();
    say("paused", "paused");
  } else {
    say("waiting", "connecting");
    listen();
    if (view) refresh(view);
  }
});
// A page that is not seen holds no connection: a browser has six for a server.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stream?.abort();
  else if (!paused) listen();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  const given = takeToken();
  show();
  if (given) listen();
});
whenRefused(askForToken);
takeToken();
show();
if (token) listen();
