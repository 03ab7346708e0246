// Parts of a page that are made once and then updated in place, so that focus, selection and scroll
// position stay. Whatever comes from a store is put into the page as text, never as markup.

export const POINTS = 120;
export const samples = []; // what the charts draw, at most POINTS

export function h(tag, given, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function put(node, text) {
  if (node.textContent === text) return;
  const first = node.textContent === "";
  node.textContent = text;
  if (first) return;
  node.classList.remove("fresh");
  void node.offsetWidth; // begins the animation again
  node.classList.add("fresh");
}

// A table of rows with a key.
export function table(caption, columns, key, empty) {
  const body = h("tbody");
  const none = h("p", { class: "empty" }, empty);
  const head = columns.map((one) => h("th", { scope: "col", class: one.class }, one.title));
  const whole = h("table", { role: "table" }, h("caption", null, caption), h("thead", null, h("tr", { role: "row" }, ...head)), body);
  // On a narrow screen a row of many columns becomes a few lines.
  const shape = columns.length > 4 ? "scroll stack" : "scroll";
  const node = h("div", { class: shape, role: "region", tabindex: "0", "aria-label": caption }, whole, none);
  const known = new Map();

  function make(row) {
    const cells = columns.map((one, at) => {
      const kind = at ? { role: "cell", "data-label": one.title } : { role: "rowheader", scope: "row" };
      const cell = h(at ? "td" : "th", { class: one.class, ...kind });
      cell.append(one.href ? h("a", { href: one.href(row) }) : h("bdi"));
      return cell;
    });
    return h("tr", { role: "row" }, ...cells);
  }

  function update(rows) {
    const wanted = new Set(rows.map(key));
    for (const [name, row] of known) {
      if (!wanted.has(name)) {
        row.remove();
        known.delete(name);
      }
    }
    let before = null;
    for (const one of rows) {
      const row = known.get(key(one)) ?? make(one);
      known.set(key(one), row);
      columns.forEach((column, at) => put(row.children[at].firstChild, column.text(one)));
      const place = before ? before.nextSibling : body.firstChild;
      if (place !== row) body.insertBefore(row, place);
      before = row;
    }
    whole.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  }
  update([]);
  return { node, update };
}

// Figures under their names, updated in place.
export function cards(names) {
  const values = new Map();
  const node = h("dl", { class: "cards" });
  for (const name of names) {
    const value = h("span");
    const small = h("small");
    values.set(name, [value, small]);
    node.append(h("div", null, h("dt", null, name), h("dd", null, value, small)));
  }
  return {
    node,
    set(name, text, more) {
      const [value, small] = values.get(name);
      put(value, text);
      if (more !== undefined) small.textContent = more;
    },
    show(name, isShown) {
      values.get(name)[0].closest("div").hidden = !isShown;
    },
  };
}

export function chart(title, figure, format) {
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const area = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["class", "chart"], ["viewBox", "0 0 100 30"], ["preserveAspectRatio", "none"],
    ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  svg.append(area, line);
  const value = h("b");
  const node = h("figure", null, h("figcaption", null, h("span", null, title), value), svg);
  function update() {
    const values = samples.map((one) => one[figure] ?? 0);
    const top = Math.max(...values, 1e-9);
    const step = 100 / (POINTS - 1);
    const start = 100 - (values.length - 1) * step;
    const points = values.map((one, at) => `${(start + at * step).toFixed(2)},${(29 - (one / top) * 27).toFixed(2)}`);
    line.setAttribute("points", points.join(" "));
    area.setAttribute("points", values.length ? `${start.toFixed(2)},30 ${points.join(" ")} 100,30` : "");
    const newest = samples.at(-1)?.[figure];
    value.textContent = `${format(newest)}, max ${format(top > 1e-9 ? top : 0)}`;
  }
  return { node, update };
}

export function facts(pairs) {
  const list = h("dl", { class: "facts" });
  for (const [name, value] of pairs) list.append(h("dt", null, name), h("dd", null, value));
  return list;
}

export function note(text) {
  return h("p", { class: "note" }, text);
}
