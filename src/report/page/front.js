// Plans that no other beats: time to the right, memory left upwards.
import { drawn, element, section } from "./dom.js";
import { bytesText, secondsText } from "./units.js";

const kHeight = 300, kLeft = 62, kRight = 14, kTop = 14, kBottom = 46, kDot = 6;

/** Round numbers between two, about `count` of them. @param {number} from @param {number} to @param {number} count */
function ticksOf(from, to, count) {
  const raw = (to - from) / count, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? raw;
  return Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, i) => (Math.ceil(from / step) + i) * step);
}

/** @param {any} front @param {number} width of the picture, in pixels */
function pictureOf(front, width) {
  const seconds = front.plans.map((/** @type {any} */ each) => each.seconds), least = Math.min(...seconds);
  const most = Math.max(...seconds, least * 1.05), margin = 0.04 * (most - least), from = least - margin, to = most + margin;
  const gib = Math.max(...front.plans.map((/** @type {any} */ each) => each.left_bytes)) / 2 ** 30 * 1.08 || 1;
  const x = (/** @type {number} */ value) => kLeft + ((value - from) / (to - from)) * (width - kLeft - kRight);
  const y = (/** @type {number} */ value) => kHeight - kBottom - (value / gib) * (kHeight - kBottom - kTop);
  const columns = ticksOf(from, to, Math.max(2, Math.floor(width / 100))).map((value) => drawn("g", {},
    drawn("path", { d: `M${x(value)} ${kTop}V${kHeight - kBottom}` }), drawn("text", { x: x(value), y: kHeight - kBottom + 18, "text-anchor": "middle" }, secondsText(value))));
  const rows = ticksOf(0, gib, 5).map((value) => drawn("g", {},
    drawn("path", { d: `M${kLeft} ${y(value)}H${width - kRight}` }), drawn("text", { x: kLeft - 8, y: y(value) + 4, "text-anchor": "end" }, `${value} GiB`)));
  const dots = front.plans.map((/** @type {any} */ plan) => drawn("circle", { cx: x(plan.seconds), cy: y(plan.left_bytes / 2 ** 30), r: kDot, class: `verdict-${plan.verdict}` },
    drawn("title", {}, `${secondsText(plan.seconds)}, ${bytesText(plan.left_bytes)} left on ${plan.gpus} GPUs: ${plan.flags}`)));
  return drawn("svg", { class: "front", width, height: kHeight, role: "img", "aria-label": `${front.plans.length} plans by time and memory left, as in the table` },
    ...columns, ...rows, ...dots, drawn("text", { x: width - kRight, y: kHeight - 6, "text-anchor": "end" }, front.time));
}

/** @param {any} front `front` of a search's views: {time: what the axis counts, plans: [{seconds, left_bytes, gpus, verdict, flags}]} */
export function frontSection(front) {
  const host = element("div", { class: "plot" });
  new ResizeObserver(() => host.replaceChildren(pictureOf(front, Math.max(280, host.clientWidth)))).observe(host);
  return section("Time against memory left", element("p", { class: "faint" }, "Each dot is a plan that no other beats in time, memory left, GPUs and cost together."), host);
}
