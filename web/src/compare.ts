// Two plans side by side.
import { element } from "../../src/report/page/dom.js";
import { bytesText, expected, secondsText } from "../../src/report/page/units.js";
import { verdictText } from "./answer";
import { commandLine, type Plan } from "./plan";

export interface Answered {
  plan: Plan;
  estimate: any;
}

function rowsOf(a: any, b: any): string[][] {
  const names = [...new Set([...Object.keys(a.memory.categories), ...Object.keys(b.memory.categories)])];
  const difference = (from: number, to: number) => (from === to ? "" : `${to > from ? "+" : "−"}${bytesText(Math.abs(to - from))}`);
  const memory = names.map((name) => [name, a.memory.categories[name] ?? 0, b.memory.categories[name] ?? 0] as const);
  const all = ["device", expected(a.memory.device_bytes), expected(b.memory.device_bytes)] as const;
  const [stepA, stepB] = [expected(a.time.step_seconds), expected(b.time.step_seconds)];
  return [...[all, ...memory].map(([name, from, to]) => [name.replaceAll("_", " "), bytesText(from), bytesText(to), difference(from, to)]),
    ["step", secondsText(stepA), secondsText(stepB), `× ${(stepB / stepA).toFixed(2)}`]];
}

export function compared(kept: Answered, now: Answered, forget: () => void): HTMLElement {
  const head = (text: string) => element("th", { scope: "col" }, text);
  const words = [["command", commandLine(kept.plan), commandLine(now.plan), ""], ["answer", verdictText(kept.estimate), verdictText(now.estimate), ""]];
  const rows = [...words.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text)))),
    ...rowsOf(kept.estimate, now.estimate).map((row) => element("tr", {}, ...row.map((text, i) => element("td", { class: i > 0 ? "number" : undefined }, text))))];
  return element("section", {}, element("h2", {}, "Two plans"), element("div", { class: "scroll", tabindex: 0 }, element("table", { class: "compared" },
    element("thead", {}, element("tr", {}, ...["", "kept", "now", "difference"].map(head))), element("tbody", {}, ...rows))),
    element("button", { type: "button", onclick: forget }, "Forget the kept one"));
}
