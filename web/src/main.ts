// A slider moves: the estimate follows at once, the pictures when it rests.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "../../src/report/page/report.css";
import "./page.css";
import { element } from "../../src/report/page/dom.js";
import { memorySection, timeSection } from "../../src/report/page/bars.js";
import { viewSections } from "../../src/report/page/report.js";
import { bytesText, expected, percentText, secondsText } from "../../src/report/page/units.js";
import { Controls, offered } from "./controls";
import { commandLine, decoded, encoded, kFirstPlan, requestOf, withFlags, type Plan, type State } from "./plan";
import { byServer, findPlanner, Refusal, type Planner } from "./planner";

Object.assign(globalThis, { uPlot }); // the report's charts take it from there

const kRest = 200; // ms without a change before the pictures follow
const host = (id: string) => document.getElementById(id) as HTMLElement;

function problemText(problem: unknown): string {
  if (!(problem instanceof Refusal)) return String(problem);
  const { message, where, hint } = problem.error;
  return [where ? `${where}: ${message}` : message, hint].filter(Boolean).join(". ");
}

function verdictText(estimate: any): string {
  const device = expected(estimate.memory.device_bytes), left = estimate.memory.capacity_bytes - device;
  const rate = estimate.time.images_per_second_per_gpu ?? estimate.time.tokens_per_second_per_gpu, unit = estimate.time.images_per_second_per_gpu ? "images" : "tokens";
  const mfu = estimate.flops.mfu.megatron;
  return `${estimate.verdict.replaceAll("_", " ")}: ${bytesText(device)} of ${bytesText(estimate.memory.capacity_bytes)} per GPU, ${bytesText(Math.abs(left))} ` +
    `${left >= 0 ? "left" : "too much"}; ${secondsText(expected(estimate.time.step_seconds))} a step, ${Math.round(rate).toLocaleString("en-US")} ${unit}/s per GPU` +
    (mfu ? `, MFU ${percentText(mfu)}` : "");
}

class Page {
  private plan: Plan;
  private kept: { plan: Plan; estimate: any } | undefined;
  private estimate: any;
  private asked = 0;
  private running = false;
  private rest = 0;
  private readonly controls: Controls;

  constructor(private readonly planner: Planner, { plan, kept }: State, models: string[], devices: string[], private readonly exporter: Exporter) {
    this.plan = plan;
    if (kept) void this.keep(kept);
    this.controls = new Controls(host("plan") as HTMLFormElement, models, devices, plan, (next) => this.ask(next), (problem) => this.complain(problem));
    this.ask(plan);
  }

  /** Only the newest plan counts: what was asked while an answer was made is asked once. */
  private ask(plan: Plan): void {
    this.plan = plan;
    this.asked += 1;
    if (!this.running) void this.answer();
  }

  private async answer(): Promise<void> {
    this.running = true;
    let done = 0;
    while (done !== this.asked) {
      done = this.asked;
      try {
        const began = performance.now();
        this.estimate = await this.planner.call(requestOf("estimate", this.plan));
        document.body.dataset.milliseconds = (performance.now() - began).toFixed(1);
        this.showAnswer();
      } catch (problem) {
        this.complain(problemText(problem));
      }
    }
    this.running = false;
    document.body.dataset.answered = String(done);
    clearTimeout(this.rest);
    this.rest = window.setTimeout(() => void this.follow(done), kRest);
  }

  /** The kept plan of a link: its answer is asked anew. */
  private async keep(plan: Plan): Promise<void> {
    try {
      this.kept = { plan, estimate: await this.planner.call(requestOf("estimate", plan)) };
      if (this.estimate) this.showAnswer();
      await this.writeLink();
    } catch (problem) {
      host("notice").textContent = `The plan that the link compares with is not answered: ${problemText(problem)}`;
    }
  }

  private complain(problem: string): void {
    host("problem").textContent = problem;
    host("answer").classList.add("stale");
    host("views").classList.add("stale");
  }

  private showAnswer(): void {
    host("problem").textContent = "";
    host("exported").replaceChildren(); // of another plan
    for (const id of ["answer", "views"]) host(id).classList.remove("stale");
    const line = commandLine(this.plan);
    host("answer").replaceChildren(
      element("header", { class: `verdict verdict-${this.estimate.verdict}` }, element("h1", {}, verdictText(this.estimate)), element("pre", { tabindex: 0, id: "command" }, line),
        element("p", { class: "actions" }, ...this.actions(line))),
      element("div", { class: "quick" }, memorySection(this.estimate.memory), timeSection(this.estimate.time)));
    this.showCompared();
  }

  private actions(line: string): HTMLElement[] {
    const button = (text: string, act: () => void) => element("button", { type: "button", onclick: act }, text);
    return [
      button("Copy the command", () => void navigator.clipboard.writeText(line)),
      button("Copy a link", () => void navigator.clipboard.writeText(location.href)),
      button(this.kept ? "Compare with this instead" : "Keep for comparison", () => this.compareWith({ plan: this.plan, estimate: this.estimate })),
      ...["html", "markdown", "csv", "json"].map((format) => button(`Save ${format}`, () => void this.save(format))),
      ...(this.exporter.formats.length ? [this.exportMenu()] : []),
    ];
  }

  private compareWith(kept: { plan: Plan; estimate: any } | undefined): void {
    this.kept = kept;
    this.showAnswer();
    void this.writeLink();
  }

  private async writeLink(): Promise<void> {
    history.replaceState(null, "", `#${await encoded({ plan: this.plan, kept: this.kept?.plan })}`);
  }

  private async save(format: string): Promise<void> {
    const text = format === "json" ? JSON.stringify(this.estimate, null, 2) : (await this.planner.call({ ...requestOf("report", this.plan), format })).text;
    saveFile(`plimsoll.${format === "markdown" ? "md" : format}`, text);
  }

  private exportMenu(): HTMLElement {
    return element("select", { id: "export", "aria-label": "Files that start this plan", onchange: (event) => void this.export(event.target.value) },
      element("option", { value: "" }, "Files that start it …"), ...this.exporter.formats.map((name) => element("option", { value: name }, name)));
  }

  /** The plan as another program's files, each to be read and saved. */
  private async export(to: string): Promise<void> {
    if (to === "") return host("exported").replaceChildren();
    try {
      const run = await this.exporter.planner.call({ ...requestOf("export", this.plan), to });
      const file = ({ name, text }: { name: string; text: string }) => element("details", {}, element("summary", {}, name, " ",
        element("button", { type: "button", onclick: (event) => { event.preventDefault(); saveFile(name, text); } }, `Save ${name}`)), element("pre", { tabindex: 0 }, text));
      host("exported").replaceChildren(element("section", {}, element("h2", {}, `For ${to}`), element("p", {}, "In a folder with these files: ", element("code", {}, run.command), ...(this.exporter.planner === this.planner ? [] : [` (${this.exporter.planner.where.replace("Computed", "written")})`])),
        ...run.files.map(file), ...(run.no_equal.length ? [element("p", {}, `Without an equal there: ${run.no_equal.join("; ")}`)] : [])));
    } catch (problem) {
      host("exported").replaceChildren(element("section", {}, element("h2", {}, `For ${to}`), element("p", { role: "alert" }, problemText(problem))));
    }
  }

  private showCompared(): void {
    const target = host("compared");
    if (!this.kept) return target.replaceChildren();
    const column = (plan: Plan, estimate: any) => [commandLine(plan), verdictText(estimate)];
    const [before, now] = [column(this.kept.plan, this.kept.estimate), column(this.plan, this.estimate)];
    const names = [...new Set([...Object.keys(this.kept.estimate.memory.categories), ...Object.keys(this.estimate.memory.categories)])];
    const rows = names.map((name) => {
      const [a, b] = [this.kept!.estimate.memory.categories[name] ?? 0, this.estimate.memory.categories[name] ?? 0];
      return [name.replaceAll("_", " "), bytesText(a), bytesText(b), a === b ? "" : `${b > a ? "+" : "−"}${bytesText(Math.abs(b - a))}`];
    });
    const [stepA, stepB] = [expected(this.kept.estimate.time.step_seconds), expected(this.estimate.time.step_seconds)];
    rows.push(["step", secondsText(stepA), secondsText(stepB), `× ${(stepB / stepA).toFixed(2)}`]);
    target.replaceChildren(element("section", {}, element("h2", {}, "Two plans"), element("div", { class: "scroll" }, element("table", { class: "compared" },
      element("thead", {}, element("tr", {}, ...["", "kept", "now", ""].map((text) => element("th", {}, text)))),
      element("tbody", {}, ...[["command", before[0], now[0], ""], ["answer", before[1], now[1], ""], ...rows].map((row, i) =>
        element("tr", {}, ...row.map((text, j) => element("td", { class: i > 1 && j > 0 ? "number" : undefined }, text))))))),
      element("button", { type: "button", onclick: () => this.compareWith(undefined) }, "Forget the kept one")));
  }

  /** What takes longer than a slider should wait for: menus, pictures, the link. */
  private async follow(asked: number): Promise<void> {
    await this.writeLink();
    if (asked !== this.asked) return;
    try {
      this.controls.offer((await this.planner.call({ ...requestOf("choices", this.plan), keys: offered() })).refused);
      if (asked !== this.asked) return;
      const view = await this.planner.call(requestOf("view", this.plan));
      if (asked !== this.asked) return;
      const take = (flags: string) => { this.controls.show(withFlags(this.plan, flags)); this.ask(withFlags(this.plan, flags)); };
      host("views").replaceChildren(...viewSections({ explain: view.explain, course: view.course, estimate: undefined }, take));
    } catch (problem) {
      this.complain(problemText(problem));
    }
    document.body.dataset.viewed = String(asked);
  }
}

function saveFile(name: string, text: string): void {
  const link = element("a", { href: URL.createObjectURL(new Blob([text])), download: name }) as HTMLAnchorElement;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Who writes a plan as files, and for which programs. */
interface Exporter {
  planner: Planner;
  formats: string[];
}

/** The module in a page has no `export` (its reader of YAML is a library of this machine); the server that the page came from has, if there is one. */
async function findExporter(planner: Planner): Promise<Exporter> {
  for (const each of [planner, byServer()])
    try {
      return { planner: each, formats: (await each.call({ command: "export" })).formats };
    } catch {
      continue;
    }
  return { planner, formats: [] };
}

async function begin(): Promise<void> {
  try {
    const planner = await findPlanner();
    host("where").textContent = planner.where;
    const [models, hardware, exporter] = await Promise.all([planner.call({ command: "models" }), planner.call({ command: "hardware" }), findExporter(planner)]);
    let state: State = { plan: kFirstPlan };
    if (location.hash.length > 1)
      state = await decoded(location.hash.slice(1)).catch(() => {
        host("notice").textContent = "The link holds no plan: it may be cut. This is another one.";
        return { plan: kFirstPlan };
      });
    const names = (list: any[]) => list.map((each) => (typeof each === "string" ? each : each.name));
    new Page(planner, state, names(models.models), names(hardware.accelerators), exporter);
  } catch (problem) {
    host("problem").textContent = `The planner does not start: ${problem instanceof Error ? problem.message : problem}`;
  }
}

void begin();
