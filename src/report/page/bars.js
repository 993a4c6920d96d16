// Parts of a whole as one bar and its legend: memory against capacity, time of a step.
import { element, section } from "./dom.js";
import { bytesText, expected, inkOf, percentText, secondsText, spoken } from "./units.js";

/** @typedef {{name: string, value: number}} Part */

/**
 * A bar of parts. Where there is a limit, the line that a load must not pass, its name stands above it and what lies beyond is hatched.
 * @param {Part[]} parts largest first
 * @param {number} whole what the whole width stands for
 * @param {number} limit where the line is drawn; 0: none
 * @param {(value: number) => string} text
 */
export function stackedBar(parts, whole, limit, text) {
  const bar = element("div", { class: "bar", role: "img", "aria-label": parts.map((part) => `${spoken(part.name)} ${text(part.value)}`).join(", ") });
  for (const part of parts) {
    const name = `${spoken(part.name)}: ${text(part.value)}`;
    bar.append(element("span", { style: `width:${(100 * part.value) / whole}%;background:${inkOf(part.name)}`, title: name }));
  }
  if (limit <= 0) return bar;
  const at = (100 * limit) / whole;
  if (at < 99.9) bar.append(element("i", { class: "beyond", style: `left:${at}%` }));
  bar.append(element("i", { class: "limit", style: `left:${at}%`, title: `capacity: ${text(limit)}` }));
  const label = element("span", { class: at > 50 ? "line-name left" : "line-name", style: at > 50 ? `right:${100 - at}%` : `left:${at}%` }, `capacity ${text(limit)}`);
  return element("div", { class: "loaded" }, label, bar);
}

/** @param {Part[]} parts @param {number} whole @param {(value: number) => string} text */
export function legend(parts, whole, text) {
  const rows = parts.map((part) =>
    element("tr", {}, element("td", {}, element("i", { class: "swatch", style: `background:${inkOf(part.name)}` }), spoken(part.name)),
      element("td", { class: "number" }, text(part.value)), element("td", { class: "number" }, percentText(part.value / whole))));
  return element("table", { class: "legend" }, element("tbody", {}, ...rows));
}

/** Memory of the worst rank by category against what the device has. @param {any} memory `memory` of plimsoll/estimate/1 */
export function memorySection(memory) {
  const parts = Object.entries(memory.categories).map(([name, value]) => ({ name, value: Number(value) })).filter((part) => part.value > 0);
  const device = expected(memory.device_bytes), capacity = memory.capacity_bytes;
  const band = typeof memory.device_bytes === "number" ? "" : ` (${bytesText(memory.device_bytes.low)} to ${bytesText(memory.device_bytes.high)})`;
  const path = [["requested", memory.requested_bytes], ["allocated", memory.allocated_bytes], ["reserved", memory.reserved_bytes], ["device", device]]
    .filter(([, bytes]) => bytes !== undefined).map(([name, bytes]) => `${name} ${bytesText(bytes)}`).join(" → ");
  return section("Memory per GPU",
    element("p", {}, element("strong", {}, `${bytesText(device)} of ${bytesText(capacity)}`), band),
    stackedBar(parts, Math.max(device, capacity), capacity, bytesText), legend(parts, capacity, bytesText), element("p", { class: "faint" }, path));
}

/** What a step's time goes into. @param {any} time `time` of plimsoll/estimate/1 */
export function timeSection(time) {
  const step = expected(time.step_seconds);
  const parts = Object.entries(time.breakdown).map(([name, value]) => ({ name, value: Number(value) })).sort((a, b) => b.value - a.value);
  const band = typeof time.step_seconds === "number" ? "" : ` (${secondsText(time.step_seconds.low)} to ${secondsText(time.step_seconds.high)})`;
  const how = time.basis === "played" ? "played: the program on its streams" : "a closed form stands in for the played step";
  return section("Time of a step", element("p", {}, element("strong", {}, secondsText(step)), band),
    stackedBar(parts, step, 0, secondsText), legend(parts, step, secondsText), element("p", { class: "faint" }, how),
    ...(time.advice || []).map((/** @type {string} */ line) => element("p", {}, line)));
}
