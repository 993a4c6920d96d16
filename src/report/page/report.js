// The whole of a report, in the order in which people ask.
import { element } from "./dom.js";
import { memorySection, timeSection } from "./bars.js";
import { frontSection } from "./front.js";
import { courseSection } from "./memory.js";
import { streamsSection } from "./streams.js";
import { changesSection, tableSection } from "./tables.js";
import { treemapSection } from "./treemap.js";
import { whyText } from "./why.js";

/** @param {any} views plimsoll/view/1, whole or in part @param {(flag: string) => void} [take] what a click on a change does @returns {HTMLElement[]} */
export function viewSections(views, take) {
  const { estimate, explain, course, front } = views, sections = [], capacity = (estimate ?? explain)?.memory.capacity_bytes ?? 0;
  if (front) sections.push(frontSection(front));
  if (estimate) sections.push(memorySection(estimate.memory));
  if (explain) sections.push(changesSection("What would lower memory most, one change at a time", explain.changes, capacity, take), treemapSection(explain.alive, explain.memory, explain.peak));
  if (course) sections.push(courseSection(course.memory, capacity));
  if (estimate) sections.push(timeSection(estimate.time));
  if (explain?.faster) sections.push(changesSection("What would make it faster, one change at a time", explain.faster, capacity, take));
  if (course) sections.push(streamsSection(course));
  return sections;
}

/** @param {HTMLElement} target @param {any} report */
export function showReport(target, report) {
  const verdict = report.verdict.replaceAll(" ", "_");
  const lists = report.listings.map((/** @type {any} */ list) => element("details", {}, element("summary", {}, `${list.title} (${list.lines.length})`),
    element("ul", {}, ...list.lines.map((/** @type {string} */ line) => element("li", {}, line)))));
  target.replaceChildren(
    element("header", { class: `verdict verdict-${verdict}` }, element("h1", {}, report.answer), ...(report.views.estimate ? [element("p", { class: "why" }, whyText(report.views.estimate.memory, verdict))] : []), ...(report.setting ? [element("p", {}, report.setting)] : []),
      ...(report.command ? [element("pre", { tabindex: 0 }, report.command)] : []), ...(report.made ? [element("p", { class: "faint" }, report.made)] : [])),
    ...viewSections(report.views), ...report.tables.filter((/** @type {any} */ table) => table.rows.length > 0).map(tableSection), ...lists);
}
