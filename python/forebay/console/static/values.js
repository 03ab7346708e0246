// Values as text.

const counts = new Intl.NumberFormat("en");
const rounded = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function count(value) {
  return value === null || value === undefined ? "-" : counts.format(value);
}

export function rate(value) {
  return value === null || value === undefined ? "-" : `${rounded.format(value)}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "-";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  if (value === 1 && at === 0) return "1 byte";
  return `${at ? value.toFixed(1) : count(value)} ${units[at]}`;
}

export function byteRate(value) {
  return value === null || value === undefined ? "-" : `${bytes(Math.round(value))}/s`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "-";
  if (value === 0) return "0 s";
  for (const [least, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]) {
    if (value >= least) return `${rounded.format(value / least)} ${unit}`;
  }
  return `${rounded.format(value * 1e9)} ns`;
}

export function age(value) {
  if (value < 120) return seconds(value);
  for (const [size, unit] of [[86400, "days"], [3600, "h"], [60, "min"]]) {
    if (value >= 2 * size || size === 60) return `${Math.floor(value / size)} ${unit}`;
  }
  return "";
}

export function time(ms) {
  if (ms === null || ms === undefined) return "-";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return `${day} ${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function bodyText(body) {
  if (body.size === 0) return "(empty)";
  return body.text + (body.truncated ? " ..." : "");
}

export function address(path, given) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}
