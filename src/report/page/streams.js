// What every stream of every pipeline rank does over the step: one row each, a rectangle per stretch of work.
import { drawn, element, section } from "./dom.js";
import { inkOf, secondsText } from "./units.js";

const kRow = 18, kLabel = 150, kWidth = 1000;

/** @param {any} stream @param {number} index @param {number} step seconds */
function rowOf(stream, index, step) {
  const group = drawn("g", { transform: `translate(0 ${index * kRow})` });
  for (const [name, start, length] of stream.spans_us) {
    const what = stream.names[name], x = kLabel + (start / 1e6 / step) * (kWidth - kLabel), width = (length / 1e6 / step) * (kWidth - kLabel);
    group.append(drawn("rect", { x: x.toFixed(2), y: 2, width: Math.max(0.3, width).toFixed(2), height: kRow - 4, style: `fill:${inkOf(what)}` },
      drawn("title", {}, `${what}: ${secondsText(length / 1e6)}, from ${secondsText(start / 1e6)}`)));
  }
  group.append(drawn("text", { x: kLabel - 6, y: kRow - 5, "text-anchor": "end" }, stream.label));
  return group;
}

/** Seconds of each kind of work on a stream: what a reader without the picture hears. @param {any} stream */
function spokenRow(stream) {
  const sums = stream.names.map(() => 0);
  for (const [name, , length] of stream.spans_us) sums[name] += length / 1e6;
  return `${stream.label}: ${stream.names.map((/** @type {string} */ what, /** @type {number} */ i) => `${what} ${secondsText(sums[i])}`).join(", ")}`;
}

/** @param {any} course `course` of plimsoll/view/1 */
export function streamsSection(course) {
  if (!course.streams || course.streams.length === 0)
    return section("Streams over the step", element("p", {}, course.because ? `Not played: ${course.because}` : "The step was not played."));
  const several = new Set(course.streams.map((/** @type {any} */ each) => each.rank)).size > 1;
  const rows = course.streams.map((/** @type {any} */ each) => ({ ...each, label: several ? `rank ${each.rank} ${each.stream}` : each.stream }));
  const span = rows.reduce((/** @type {number} */ most, /** @type {any} */ row) => row.spans_us.reduce((/** @type {number} */ end, /** @type {any} */ each) => Math.max(end, (each[1] + each[2]) / 1e6), most), course.step_seconds);
  const picture = drawn("svg", { viewBox: `0 0 ${kWidth} ${rows.length * kRow}`, class: "streams", role: "img", "aria-label": rows.map(spokenRow).join("; ") },
    ...rows.map((/** @type {any} */ row, /** @type {number} */ i) => rowOf(row, i, span)));
  const names = [...new Set(rows.flatMap((/** @type {any} */ row) => row.names))];
  const keys = names.map((name) => element("span", { class: "key" }, element("i", { class: "swatch", style: `background:${inkOf(name)}` }), name));
  const zoom = element("input", { type: "range", min: 1, max: 40, step: 0.5, value: 1, "aria-label": "width of the timeline",
    oninput: (/** @type {any} */ event) => { picture.style.width = `${100 * event.target.value}%`; } });
  return section(`Streams over the step of ${secondsText(course.step_seconds)}`, element("p", {}, ...keys), element("label", { class: "faint" }, "wider ", zoom),
    element("div", { class: "scroll", tabindex: 0 }, picture));
}
