// The answer in words and bars.
import { element } from "../../src/report/page/dom.js";
import { memorySection, timeSection } from "../../src/report/page/bars.js";
import { bytesText, expected, percentText, secondsText } from "../../src/report/page/units.js";
import { whyText } from "../../src/report/page/why.js";
import { clusterOf, commandLine, modelName, type Plan } from "./plan";

export function verdictWord(estimate: any): string {
  return estimate.verdict.replaceAll("_", " ");
}

function rateText(time: any): [string, string] {
  return time.images_per_second_per_gpu ? [Math.round(time.images_per_second_per_gpu).toLocaleString("en-US"), "images/s per GPU"]
    : [Math.round(time.tokens_per_second_per_gpu).toLocaleString("en-US"), "tokens/s per GPU"];
}

/** The answer as one line, for a table. */
export function verdictText(estimate: any): string {
  const [rate, unit] = rateText(estimate.time);
  return `${verdictWord(estimate)}: ${bytesText(expected(estimate.memory.device_bytes))} of ${bytesText(estimate.memory.capacity_bytes)} per GPU; ${secondsText(expected(estimate.time.step_seconds))} a step, ${rate} ${unit}`;
}

function headline(estimate: any): HTMLElement {
  const device = expected(estimate.memory.device_bytes), capacity = estimate.memory.capacity_bytes, left = capacity - device;
  return element("h1", {}, element("span", { class: "word" }, verdictWord(estimate)), `: ${bytesText(device)} of ${bytesText(capacity)} per GPU, ${bytesText(Math.abs(left))} ${left >= 0 ? "left" : "too much"}`);
}

function figures(estimate: any): HTMLElement {
  const { time, flops, model } = estimate, [rate, unit] = rateText(time), mfu = flops.mfu.megatron;
  const facts: [string, string][] = [["a step", secondsText(expected(time.step_seconds))], [unit, rate], ...(mfu ? [["of the peak (MFU)", percentText(mfu)] as [string, string]] : []),
    ["parameters", `${(model.parameters / 1e9).toFixed(model.parameters < 1e10 ? 2 : 1)} B`]];
  return element("dl", { class: "figures" }, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function assumed(estimate: any): HTMLElement[] {
  const list = (title: string, lines: string[]) => (lines.length ? [element("details", { class: "faint" }, element("summary", {}, `${title} (${lines.length})`), element("ul", {}, ...lines.map((line) => element("li", {}, line))))] : []);
  return [...list("Notes", estimate.notes ?? []), ...list("What was not said, and is taken so", estimate.assumptions ?? []), ...list("Keys that nothing reads", estimate.unread_keys ?? [])];
}

/** The card that stands first. */
export function answerCard(plan: Plan, estimate: any, actions: HTMLElement[]): HTMLElement {
  return element("section", { class: `card verdict-${estimate.verdict}` },
    element("p", { class: "faint" }, `${modelName(plan)} on ${clusterOf(plan).replaceAll("x", " × ").replace(plan.device.replaceAll("x", " × "), plan.device)}`),
    headline(estimate), element("p", { class: "why" }, whyText(estimate.memory, estimate.verdict)), element("div", { id: "rescue" }), figures(estimate),
    element("div", { class: "quick" }, memorySection(estimate.memory), timeSection(estimate.time)), ...assumed(estimate),
    element("pre", { tabindex: 0, id: "command", "aria-label": "the same question for the command line" }, commandLine(plan)), element("p", { class: "actions" }, ...actions));
}

/** What stays in sight while a slider moves. */
export function strip(estimate: any): HTMLElement[] {
  const device = expected(estimate.memory.device_bytes), capacity = estimate.memory.capacity_bytes, whole = Math.max(device, capacity);
  return [element("span", {}, `${(device / 2 ** 30).toFixed(1)} of ${(capacity / 2 ** 30).toFixed(1)} GiB`),
    element("span", { class: `verdict-${estimate.verdict}` }, element("span", { class: "gauge" }, element("i", { style: `width:${(100 * device) / whole}%` }), element("b", { style: `left:${(100 * capacity) / whole}%` }))),
    element("span", { class: `chip verdict-${estimate.verdict}` }, verdictWord(estimate))];
}

/** What would make it fit, one click away. @param change of plimsoll/rescue/1 */
export function rescueText(change: any, take: (flags: string) => void): HTMLElement {
  if (!change) return element("div", { class: "rescue" }, "No change of the strategy that was tried makes it fit: take more or larger GPUs.");
  return element("div", { class: "rescue" }, "It would fit with ", element("button", { type: "button", class: "take", onclick: () => take(change.flag) }, change.flag), `: ${bytesText(change.device_bytes)} per GPU.`);
}
