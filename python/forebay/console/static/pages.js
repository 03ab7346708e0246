// The pages. Each is {title, nodes, refresh}: its parts, and what brings them up to date; perhaps
// `sample`, which gets each sample, and `every`, the milliseconds between two updates at least.

import { cards, chart, facts, h, note, table } from "./elements.js";
import { download, get, request } from "./requests.js";
import { address, age, bodyText, byteRate, bytes, count, rate, seconds, time } from "./values.js";

// Shows an error under the heading of the page.
export function fail(error) {
  document.getElementById("main").querySelector(":scope > .error")?.remove();
  document.querySelector("main > h1")?.after(h("p", { class: "error", role: "alert" }, error.message));
}

function overview() {
  const names = ["Messages", "Sent", "Stored", "Topics", "Lag of all groups", "Log", "Not on disk yet", "Disk free", "Damage"];
  const all = cards(names);
  const byteChart = chart("Bytes per second", "bytes_per_second", byteRate);
  const charts = [chart("Messages per second", "messages_per_second", rate), byteChart];
  const latency = table("Latency since the store was opened", [
    { title: "Of", text: (one) => one.name },
    { title: "Count", class: "number", text: (one) => count(one.count) },
    ...["mean", "p50", "p99", "p999", "max"].map((name) => (
      { title: name, class: `number${name === "p999" ? " minor" : ""}`, text: (one) => seconds(one[name]) })),
  ], (one) => one.name, "No process that writes the store has shown anything here.");
  const writer = note("");
  const opened = h("div");
  let total = null;

  function sample(one) {
    all.set("Messages", count(one.messages));
    all.set("Topics", count(one.topics), `${count(one.queues)} queues`);
    all.set("Lag of all groups", count(one.lag));
    // Figures that are not known of this store are left out.
    const isOneLog = one.position !== null;
    all.show("Stored", isOneLog);
    byteChart.node.hidden = !isOneLog;
    all.set("Log", bytes(one.log_bytes), isOneLog ? `to position ${count(one.position)}` : "");
    all.show("Not on disk yet", one.behind !== null);
    all.set("Not on disk yet", bytes(one.behind));
    all.set("Disk free", bytes(one.disk_free), total ? `of ${bytes(total)}` : "");
    all.set("Damage", one.damaged ? `${count(one.damaged)} ${one.damaged === 1 ? "place" : "places"}` : "none found");
    if (one.messages_per_second !== undefined) {
      all.set("Sent", rate(one.messages_per_second));
      all.set("Stored", byteRate(one.bytes_per_second));
    }
    charts.forEach((each) => each.update());
  }

  async function refresh() {
    const found = await get("overview");
    total = found.disk_total;
    // The rates are those of the samples: the store counts only what this process sends.
    sample({ ...found.stats, ...found, messages_per_second: undefined });
    document.getElementById("path").textContent = found.path;
    const rows = [["Sends", "put_latency"], ["Waits for the disk", "flush_wait"]];
    // Those of this process, or else those that the process that writes has left for others.
    const other = found.stats.put_latency.count ? null : found.stats.writer;
    const of = other ?? found.stats;
    latency.update(rows.map(([name, part]) => ({ name, ...of[part] })).filter((one) => one.count));
    writer.textContent = other ? `Of process ${other.pid}, which writes the store.` : "";
    const past = found.recovery;
    opened.replaceChildren(facts([
      ["Store", found.path], ["Engine", found.engine], ["Mode", found.mode === "r" ? "reading" : "writing"],
      ["Opened", `in ${seconds(past.elapsed)}; ${count(past.records_checked)} records checked`],
      ["Last close", past.clean ? "clean" : "a writer is still running, or did not close the store"],
      ["Forebay", found.version],
    ]));
  }
  all.set("Sent", "-");
  all.set("Stored", "-");
  const nodes = [all.node, h("div", { class: "charts" }, ...charts.map((one) => one.node)),
    h("h2", null, "Latency"), latency.node, writer, h("h2", null, "Store"), opened];
  return { title: "Overview", nodes, refresh, sample };
}

function topics() {
  const part = h("input", { type: "search", name: "part", autocomplete: "off", oninput: () => update() });
  const rows = table("Topics", [
    { title: "Topic", class: "name", text: (one) => one.name, href: (one) => `#${address("/topic", { topic: one.name })}` },
    { title: "Queues", class: "number", text: (one) => count(one.queues) },
    { title: "Messages", class: "number", text: (one) => count(one.messages) },
    { title: "Sent", class: "number", text: (one) => rate(one.per_second) },
    { title: "Access", class: "minor", text: (one) => [one.readable && "read", one.writable && "write"].filter(Boolean).join(", ") || "none" },
  ], (one) => one.name, "No topic has such a name.");
  const more = note("");
  async function update() {
    const asked = part.value;
    const found = await get("topics", { part: asked });
    if (asked !== part.value) return;
    rows.update(found.topics);
    more.textContent = found.matching > found.topics.length
      ? `The first ${count(found.topics.length)} of ${count(found.matching)}` : `${count(found.matching)} of ${count(found.all)}`;
  }
  const form = h("form", { role: "search", onsubmit: (event) => event.preventDefault() }, h("label", null, "Name contains", part));
  return { title: "Topics", nodes: [form, rows.node, more], refresh: update };
}

function place(one) {
  return `#${address("/message", { topic: one.topic, queue: one.queue, offset: one.offset })}`;
}

function messageTable(caption, more) {
  return table(caption, [
    { title: "Stored", class: "time", text: (one) => time(one.stored), href: place },
    { title: "Queue", class: "number", text: (one) => String(one.queue) },
    { title: "Offset", class: "number", text: (one) => count(one.offset) },
    { title: "Key", class: "name", text: (one) => one.key ?? "" },
    ...more,
    { title: "Body", class: "body", text: (one) => bodyText(one.body) },
    { title: "Size", class: "number minor", text: (one) => bytes(one.body.size) },
  ], (one) => `${one.queue}@${one.offset}`, "No messages here.");
}

function local(ms) {
  return ms ? time(Number(ms)).replace(" ", "T") : "";
}

function messageForm(args, ids) {
  const field = (label, name, given) => h("label", null, label, h("input", { name, autocomplete: "off", value: args[name], ...given }));
  const option = (name, value, text) => h("option", { value, selected: (args[name] ?? "") === value }, text);
  const queue = h("select", { name: "queue" }, option("queue", "", "all"), ...ids.map((id) => option("queue", String(id), String(id))));
  const order = h("select", { name: "order" }, option("order", "", "newest first"), option("order", "oldest", "oldest first"));
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(form));
    if (given.time) given.time = String(new Date(given.time).getTime());
    if (given.key) given.queue = given.order = given.offset = "";
    location.hash = address("/topic", { topic: args.topic, ...given });
  };
  const form = h("form", { onsubmit: submit },
    h("label", null, "Queue", queue), h("label", null, "Order", order),
    field("From offset", "offset", { class: "small", inputmode: "numeric", pattern: "[0-9]*", title: "an offset; choose a queue" }),
    field("From time", "time", { type: "datetime-local", step: "0.001", value: local(args.time) }),
    field("Key", "key"), h("button", { class: "main" }, "Show"));
  return form;
}

function topic(args) {
  const messages = messageTable("Messages", [{ title: "Tags", class: "name minor", text: (one) => one.tags ?? "" }]);
  const queues = table("Queues", [
    { title: "Queue", text: (one) => String(one.id), href: (one) => `#${address("/topic", { topic: args.topic, queue: one.id })}` },
    { title: "Min offset", class: "number", text: (one) => count(one.min) },
    { title: "Max offset", class: "number", text: (one) => count(one.max) },
    { title: "Messages", class: "number", text: (one) => count(one.max - one.min) },
    { title: "Bytes", class: "number", text: (one) => bytes(one.bytes) },
    { title: "Newest stored", class: "time", text: (one) => time(one.last) },
  ], (one) => one.id, "The topic has no queues.");
  const top = h("div");
  const about = note("");
  const pages = h("div", { class: "row" });
  const isMoving = !args.places && !args.offset && !args.time && args.order !== "oldest";
  let first = true;

  async function refresh() {
    const found = await get("topic", { topic: args.topic });
    if (first) top.replaceChildren(messageForm(args, found.rows.map((one) => one.id)));
    queues.update(found.rows);
    about.textContent = `${count(found.messages)} messages in ${count(found.queues)} queues, ${rate(found.per_second)}`
      + (found.bytes_exact ? "" : "; bytes are estimated from the newest messages")
      + (found.rows.length < found.queues ? `; the first ${count(found.rows.length)} queues are shown` : "");
    if (!first && !isMoving) return;
    first = false;
    const { topic: name, queue, order, offset, time: at, key, places } = args;
    const page = await get("messages", key ? { topic: name, key, time: at } : { topic: name, queue, order, offset, time: at, places });
    messages.update(page.messages);
    const links = [];
    if (places) links.push(h("a", { class: "button", href: `#${address("/topic", { ...args, places: "" })}` }, "First page"));
    if (page.next) {
      const word = order === "oldest" ? "Newer messages" : "Older messages";
      links.push(h("a", { class: "button", href: `#${address("/topic", { ...args, places: page.next })}` }, word));
    }
    if (page.cut) links.push(note("Damage was passed over; the page ends early."));
    pages.replaceChildren(...links);
  }
  return { title: args.topic, nodes: [about, top, messages.node, pages, h("h2", null, "Queues"), queues.node], refresh };
}

function message(args) {
  const content = h("div");
  async function refresh() {
    const found = await get("message", args);
    const where = { topic: found.topic, queue: found.queue, offset: found.offset };
    const step = (by, text) => h("a", { class: "button", href: place({ ...where, offset: found.offset + by }) }, text);
    const links = [h("a", { class: "button", href: `#${address("/topic", { topic: found.topic })}` }, "Topic")];
    if (found.offset > 0) links.push(step(-1, "Previous"));
    links.push(step(1, "Next"));
    links.push(h("button", { type: "button", onclick: () => download(where).catch((error) => fail(error)) }, `Download ${bytes(found.body.size)}`));
    const pairs = (given) => Object.entries(given).sort(([one], [other]) => (one < other ? -1 : 1));
    content.replaceChildren(
      h("div", { class: "row" }, ...links), ...bodyNodes(found.body),
      h("h2", null, "Message"), facts([
        ["Topic", found.topic], ["Queue", String(found.queue)], ["Offset", count(found.offset)],
        ["Position", `${count(found.position)}, ${bytes(found.size)} in the log`], ["Message id", found.message_id],
        ["Stored", time(found.stored)], ["Born", `${time(found.born)} at ${found.born_host}`],
        ["Keys", found.keys.join(" ") || "none"], ["Tag", found.tags ?? "none"], ["Attempts", String(found.reconsume_times)],
      ]),
      h("h2", null, "Properties"), Object.keys(found.properties).length ? facts(pairs(found.properties)) : note("None."),
      h("h2", null, "System properties"), facts(pairs(found.system_properties)));
  }
  const title = args.id ? `Message ${args.id}` : `${args.topic} ${args.queue}@${args.offset}`;
  // A message does not change.
  return { title, nodes: [content], refresh, every: Infinity };
}

function bodyNodes(body) {
  const forms = [["json", "JSON"], ["text", "Text"], ["hex", "Bytes"]].filter(([name]) => body[name] !== null);
  const content = h("pre", { tabindex: "0", "aria-label": "Body" });
  const about = note("");
  const choose = (name) => {
    content.textContent = body[name] || "(empty)";
    content.className = name;
    const isCut = name === "hex" ? body.hex_truncated : body.text_truncated;
    about.textContent = isCut ? `The first ${bytes(name === "hex" ? 4096 : 65536)} of ${bytes(body.size)}. Download it to see all.` : "";
  };
  const select = h("select", { onchange: (event) => choose(event.target.value) },
    ...forms.map(([name, label]) => h("option", { value: name }, label)));
  choose(forms[0][0]);
  return [h("form", null, h("label", null, "Body as", select)), content, about];
}

function groups() {
  const content = h("div");
  const known = new Map();
  const columns = [
    { title: "Topic", class: "name", text: (one) => one.topic, href: (one) => `#${address("/topic", { topic: one.topic })}` },
    { title: "Queue", class: "number", text: (one) => String(one.queue) },
    { title: "Committed", class: "number", text: (one) => count(one.committed) },
    { title: "End", class: "number", text: (one) => count(one.max_offset) },
    { title: "Lag", class: "number", text: (one) => count(one.lag) },
    { title: "Lag in bytes", class: "number minor", text: (one) => bytes(one.lag_bytes) },
    { title: "Lag in time", class: "number", text: (one) => age(one.lag_seconds) },
    { title: "Unsettled", class: "number minor", text: (one) => count(one.unsettled) },
    { title: "Retries", class: "number minor", text: (one) => count(one.retries) },
    { title: "Owner", class: "number minor", text: (one) => (one.owner === null ? "" : String(one.owner)) },
    { title: "Progress", class: "time minor", text: (one) => time(one.progress_timestamp) },
  ];
  async function refresh() {
    const found = await get("groups");
    const sections = found.groups.map((one) => {
      if (!known.has(one.group)) {
        const rows = table(`Queues of ${one.group}`, columns, (row) => `${row.topic} ${row.queue}`, "No queues are shown.");
        const about = note("");
        known.set(one.group, { rows, about, node: h("section", null, h("h2", null, one.group), about, rows.node) });
      }
      const { rows, about, node } = known.get(one.group);
      rows.update(one.queues);
      about.textContent = `Lag: ${count(one.lag)} messages, ${bytes(one.lag_bytes)}, ${age(one.lag_seconds)}`
        + (one.more ? `; ${count(one.more)} more queues are not shown` : "");
      return node;
    });
    if (!sections.length) sections.push(note("No group has consumed anything."));
    if (sections.length !== content.children.length || sections.some((one, at) => one !== content.children[at])) {
      content.replaceChildren(...sections);
    }
  }
  return { title: "Groups", nodes: [content], refresh };
}

function letters(args) {
  return args.group ? lettersOf(args.group) : letterGroups();
}

function letterGroups() {
  const rows = table("Groups with dead letters", [
    { title: "Group", class: "name", text: (one) => one.group, href: (one) => `#${address("/letters", { group: one.group })}` },
    { title: "Waiting", class: "number", text: (one) => count(one.waiting) },
    { title: "In the log", class: "number", text: (one) => count(one.messages) },
  ], (one) => one.group, "No group has dead letters.");
  const refresh = async () => rows.update((await get("letters")).groups);
  return { title: "Dead letters", nodes: [rows.node], refresh };
}

function lettersOf(group) {
  const rows = messageTable("The first dead letters that wait", [
    { title: "Original topic", class: "name", text: (one) => one.original_topic ?? "unknown" },
    { title: "Attempts", class: "number minor", text: (one) => count(one.attempts) },
    { title: "Reason", class: "reason", text: (one) => one.reason ?? "" },
  ]);
  const about = note("");
  const action = h("div");
  const outcome = h("p", { role: "status" });
  let first = true;
  async function redrive(event) {
    event.preventDefault();
    const form = event.target;
    const button = form.querySelector("button");
    const given = Object.fromEntries(new FormData(form));
    const body = JSON.stringify({ group, limit: Number(given.limit), to: given.to || null });
    button.disabled = true;
    outcome.className = "note";
    outcome.textContent = "redriving";
    try {
      const headers = { "content-type": "application/json" };
      const found = await (await request("api/redrive", { method: "POST", headers, body })).json();
      const sent = Object.entries(found.sent).map(([name, number]) => `${count(number)} to ${name}`);
      outcome.className = "done";
      outcome.textContent = `Sent ${sent.join(", ") || "none"}; ${count(found.waiting)} wait.`;
    } catch (error) {
      outcome.className = "error";
      outcome.textContent = error.message;
    }
    button.disabled = false;
    await refresh();
  }
  async function refresh() {
    const found = await get("letters", { group });
    rows.update(found.letters);
    about.textContent = `${count(found.waiting)} wait.`;
    if (!first) return;
    first = false;
    const { write } = await get("overview");
    action.replaceChildren(write
      ? h("form", { onsubmit: redrive },
        h("label", null, "At most", h("input", { name: "limit", type: "number", min: "1", max: "10000", value: "100", class: "small", required: true })),
        h("label", null, "To topic", h("input", { name: "to", placeholder: "the original one", autocomplete: "off" })),
        h("button", { class: "main" }, "Redrive the first"))
      : note("Start the console with --write to redrive them, or use forebay dlq redrive."));
  }
  return { title: `Dead letters of ${group}`, nodes: [about, action, outcome, rows.node], refresh };
}

function health() {
  const places = table("Damage that was found", [
    { title: "File", class: "name", text: (one) => one.path },
    { title: "Kind", class: "minor", text: (one) => one.kind },
    { title: "Position", class: "number", text: (one) => count(one.position) },
    { title: "Length", class: "number minor", text: (one) => bytes(one.length) },
    { title: "What", class: "name", text: (one) => one.reason },
    { title: "Lost", class: "name", text: (one) => one.lost.join(", ") + (one.lost_all > one.lost.length ? " ..." : "") },
  ], (one) => `${one.path}:${one.position}:${one.kind}`, "None so far. forebay verify checks every record.");
  const folders = table("Files by folder", [
    { title: "Folder", class: "name", text: (one) => one.name },
    { title: "Files", class: "number", text: (one) => count(one.files) },
    { title: "Length", class: "number", text: (one) => bytes(one.bytes) },
    { title: "On disk", class: "number", text: (one) => bytes(one.allocated) },
  ], (one) => one.name, "The store has no files.");
  const disk = h("meter", { min: "0", max: "1", high: "0.9", low: "0.75", optimum: "0", "aria-label": "share of the disk in use" });
  const about = note("");
  async function refresh() {
    const found = await get("damage");
    places.update(found.damage);
    folders.update(found.folders);
    const whole = await get("overview");
    const free = whole.stats.disk_free;
    disk.hidden = free === null || !whole.disk_total;
    if (!disk.hidden) disk.value = 1 - free / whole.disk_total;
    const room = disk.hidden ? "How much of the disk is free is not known" : `${bytes(free)} of ${bytes(whole.disk_total)} are free`;
    about.textContent = whole.engine === "memory" ? "The store is in memory."
      : room + (found.folders_whole ? "" : "; not all files were counted");
  }
  const nodes = [h("h2", null, "Damage"), places.node, h("h2", null, "Disk"), about, disk, folders.node];
  // Each refresh counts all files of the store.
  return { title: "Health", nodes, refresh, every: 10_000 };
}

export const PAGES = {
  "/": overview,
  "/topics": topics,
  "/topic": topic,
  "/message": message,
  "/groups": groups,
  "/letters": letters,
  "/health": health,
};
