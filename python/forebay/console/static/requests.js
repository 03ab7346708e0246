// Requests to the server. The token comes in the fragment of the address, which browsers send to
// nobody; it then stays with the tab, and out of its history.

import { h } from "./elements.js";
import { address } from "./values.js";

const KEPT = "forebay-token";
let refused = () => {}; // what the page does without a token

export let token = sessionStorage.getItem(KEPT);

export function keep(given) {
  token = given;
  sessionStorage.setItem(KEPT, given);
}

export function forget() {
  token = null;
  sessionStorage.removeItem(KEPT);
  refused();
}

export function whenRefused(call) {
  refused = call;
}

// Returns whether the address had a token, which is taken from it.
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, "", "#/");
  keep(found[1]);
  return true;
}

export async function request(path, options) {
  const headers = { ...options?.headers, Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  if (answer.status === 401) forget();
  const text = await answer.text();
  let reason = text.trim();
  try {
    reason = JSON.parse(text).error;
  } catch {
    // The text is the reason.
  }
  throw new Error(reason || `the server answered ${answer.status}`);
}

export async function get(name, given) {
  return (await request(address(`api/${name}`, given ?? {}))).json();
}

export async function download(place) {
  const answer = await request(address("api/body", place));
  const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))[1];
  const url = URL.createObjectURL(await answer.blob());
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
