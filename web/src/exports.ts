// The plan as files: of other programs, to start it; as a report, to send on.
import { element } from "../../src/report/page/dom.js";
import { requestOf, type Plan } from "./plan";
import { problemText, type Planner } from "./planner";

export function saveFile(name: string, text: string): void {
  const link = element("a", { href: URL.createObjectURL(new Blob([text])), download: name }) as HTMLAnchorElement;
  link.click();
  URL.revokeObjectURL(link.href);
}

export async function saveReport(planner: Planner, plan: Plan, estimate: any, format: string): Promise<void> {
  const text = format === "json" ? JSON.stringify(estimate, null, 2) : (await planner.call({ ...requestOf("report", plan), format })).text;
  saveFile(`plimsoll.${format === "markdown" ? "md" : format}`, text);
}

/** The plan as another program's files, each to be read and saved. */
export async function exported(planner: Planner, plan: Plan, to: string): Promise<HTMLElement> {
  try {
    const run = await planner.call({ ...requestOf("export", plan), to });
    const file = ({ name, text }: { name: string; text: string }) => element("details", {}, element("summary", {}, name, " ",
      element("button", { type: "button", class: "plain", onclick: (event) => { event.preventDefault(); saveFile(name, text); } }, `Save ${name}`)), element("pre", { tabindex: 0 }, text));
    return element("section", {}, element("h2", {}, `For ${to}`), element("p", {}, "In a folder with these files: ", element("code", {}, run.command)),
      ...run.files.map(file), ...(run.no_equal.length ? [element("p", {}, `Without an equal there: ${run.no_equal.join("; ")}`)] : []));
  } catch (problem) {
    return element("section", {}, element("h2", {}, `For ${to}`), element("p", { role: "alert" }, problemText(problem)));
  }
}
