// A slider moves: the estimate follows at once, the pictures when it rests, and then what the other places of the sliders would do.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "../../src/report/page/report.css";
import "./page.css";
import { element } from "../../src/report/page/dom.js";
import { viewSections } from "../../src/report/page/report.js";
import { expected } from "../../src/report/page/units.js";
import { answerCard, rescueText, strip } from "./answer";
import { compared, type Answered } from "./compare";
import { Controls, kNodes, kSliders, offered } from "./controls";
import { exported, saveReport } from "./exports";
import { read, type Read } from "./files";
import { commandLine, decoded, encoded, kFirstPlan, requestOf, withFlags, type Plan, type State } from "./plan";
import { findPlanner, problemText, type Planner } from "./planner";

Object.assign(globalThis, { uPlot }); // the report's charts take it from there

const kRest = 200; // ms without a change before the pictures follow
const host = (id: string) => document.getElementById(id) as HTMLElement;

class Page {
  private plan: Plan;
  private kept: Answered | undefined;
  private estimate: any;
  private refused = false; // the newest plan has no answer
  private asked = 0;
  private running = false;
  private rest = 0;
  private readonly controls: Controls;

  constructor(private readonly planner: Planner, { plan, kept }: State, models: string[], devices: string[], private readonly formats: string[]) {
    this.plan = plan;
    if (kept) void this.keep(kept);
    this.controls = new Controls(host("plan") as HTMLFormElement, models, devices, plan, { changed: (next) => this.ask(next), dropped: (files) => void this.read(files) });
    this.takeDrops();
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
        this.refused = false;
        document.body.dataset.milliseconds = (performance.now() - began).toFixed(1);
        this.showAnswer();
      } catch (problem) {
        this.refused = true;
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

  /** Files anywhere on the page. */
  private takeDrops(): void {
    let inside = 0;
    const over = (change: number) => { inside += change; document.body.classList.toggle("dropping", inside > 0); };
    addEventListener("dragenter", () => over(1));
    addEventListener("dragleave", () => over(-1));
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event: DragEvent) => {
      event.preventDefault();
      over(-inside);
      void this.read([...(event.dataTransfer?.files ?? [])]);
    });
  }

  private async read(files: File[]): Promise<void> {
    if (files.length === 0) return;
    const names = files.map((file) => file.name).join(", ");
    try {
      const found = await read(this.planner, files, this.plan);
      this.showRead(names, found);
      this.change(found.plan);
    } catch (problem) {
      host("notice").textContent = `Not read: ${names}. ${problemText(problem)}`;
    }
  }

  /** What became of the files' keys. */
  private showRead(names: string, found: Read): void {
    if (found.formats.length === 0) return host("notice").replaceChildren();
    const rows = found.keys.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text))));
    host("notice").replaceChildren(`${names}: read as ${[...new Set(found.formats)].join(", ")}, ${found.keys.length} keys. The controls stand as the files say.`,
      element("details", {}, element("summary", {}, "Every key: what it became, and where from"), element("div", { class: "scroll", tabindex: 0 }, element("table", {}, element("tbody", {}, ...rows)))),
      ...(found.unread.length ? [element("details", {}, element("summary", {}, `${found.unread.length} keys change nothing of memory and time`), element("ul", {}, ...found.unread.map((line) => element("li", {}, line))))] : []));
  }

  private complain(problem: string): void {
    host("problem").textContent = problem;
    host("strip").replaceChildren();
    for (const id of ["answer", "views"]) host(id).classList.add("stale");
  }

  private showAnswer(): void {
    host("problem").textContent = "";
    host("exported").replaceChildren(); // of another plan
    for (const id of ["answer", "views"]) host(id).classList.remove("stale");
    host("strip").replaceChildren(...strip(this.estimate));
    host("answer").replaceChildren(answerCard(this.plan, this.estimate, this.actions()));
    host("compared").replaceChildren(...(this.kept ? [compared(this.kept, { plan: this.plan, estimate: this.estimate }, () => this.compareWith(undefined))] : []));
    document.title = `${this.estimate.verdict.replaceAll("_", " ")} · plimsoll`;
  }

  private actions(): HTMLElement[] {
    const said = element("span", { class: "said", role: "status" });
    const button = (text: string, act: () => void) => element("button", { type: "button", onclick: act }, text);
    const copy = (text: string) => navigator.clipboard.writeText(text).then(() => { said.textContent = "copied"; }, () => { said.textContent = "the browser does not let this page copy"; });
    const menu = (id: string, title: string, names: string[], take: (name: string) => Promise<void>) => element("select", { id, "aria-label": title, onchange: (event) => void take(event.target.value) },
      element("option", { value: "" }, title), ...names.map((name) => element("option", { value: name }, name)));
    return [
      button("Copy a link", () => void this.writeLink().then(() => copy(location.href))), button("Copy the command", () => void copy(commandLine(this.plan))),
      button(this.kept ? "Compare with this instead" : "Keep for comparison", () => this.compareWith({ plan: this.plan, estimate: this.estimate })),
      menu("report", "Save a report …", ["html", "markdown", "csv", "json"], async (format) => { if (format) await saveReport(this.planner, this.plan, this.estimate, format); }),
      menu("export", "Files that start it …", this.formats, async (to) => host("exported").replaceChildren(...(to ? [await exported(this.planner, this.plan, to)] : []))), said,
    ];
  }

  private compareWith(kept: Answered | undefined): void {
    this.kept = kept;
    this.showAnswer();
    void this.writeLink();
  }

  private async writeLink(): Promise<void> {
    history.replaceState(null, "", `#${await encoded({ plan: this.plan, kept: this.kept?.plan })}`);
  }

  private change(plan: Plan): void {
    this.controls.show(plan);
    this.controls.forget();
    this.ask(plan);
  }

  /** What takes longer than a slider should wait for: menus, a way out, pictures, the link. Given up where another plan is asked. */
  private async follow(asked: number): Promise<void> {
    await this.writeLink();
    const take = (flags: string) => this.change(withFlags(this.plan, flags));
    try {
      for (const step of [() => this.followChoices(), ...(this.refused ? [] : [() => this.followRescue(take), () => this.followViews(take)])]) {
        if (asked !== this.asked) return;
        await step();
      }
    } catch (problem) {
      if (asked === this.asked) this.complain(problemText(problem));
    }
    document.body.dataset.viewed = String(asked);
    if (!this.refused) await this.foresee(asked);
  }

  private async followChoices(): Promise<void> {
    const plan = this.plan, choices = await this.planner.call({ ...requestOf("choices", plan), keys: offered() });
    if (plan === this.plan) this.controls.offer(choices);
  }

  private async followRescue(take: (flags: string) => void): Promise<void> {
    const kMostStages = 4; // each change plays all of them
    if (this.estimate.verdict !== "does_not_fit" || this.estimate.ranks.length > kMostStages) return;
    const plan = this.plan, { change } = await this.planner.call(requestOf("rescue", plan));
    if (plan === this.plan) host("rescue").replaceChildren(rescueText(change, take));
  }

  private async followViews(take: (flags: string) => void): Promise<void> {
    const plan = this.plan, view = await this.planner.call(requestOf("view", plan));
    if (plan === this.plan) host("views").replaceChildren(...viewSections({ explain: view.explain, course: view.course, estimate: undefined }, take));
  }

  /** What the other places of the sliders would do, one estimate after the other, as long as nothing else is asked. */
  private async foresee(asked: number): Promise<void> {
    const places = [...kNodes.map((nodes, i) => ({ key: "nodes", index: i, plan: { ...this.plan, nodes } })),
      ...kSliders.flatMap(({ key, values }) => values.map((value, index) => ({ key, index, plan: { ...this.plan, strategy: { ...this.plan.strategy, [key]: value } } })))];
    for (const { key, index, plan } of places) {
      if (this.controls.refusal({ key }, index) !== null) continue;
      const outcome = await this.planner.call(requestOf("estimate", plan)).catch(() => undefined);
      if (asked !== this.asked) return;
      if (outcome) this.controls.foresee(key, index, { verdict: outcome.verdict, bytes: expected(outcome.memory.device_bytes) });
    }
    document.body.dataset.foreseen = String(asked);
  }
}

async function begin(): Promise<void> {
  try {
    const planner = await findPlanner();
    host("where").textContent = planner.where;
    const [models, hardware, formats] = await Promise.all(["models", "hardware", "export"].map((command) => planner.call({ command })));
    let state: State = { plan: kFirstPlan };
    if (location.hash.length > 1)
      state = await decoded(location.hash.slice(1)).catch(() => {
        host("notice").textContent = "The link holds no plan: it may be cut. This is another one.";
        return { plan: kFirstPlan };
      });
    document.body.dataset.ready = performance.now().toFixed(0);
    const names = (list: any[]) => list.map((each) => (typeof each === "string" ? each : each.name));
    new Page(planner, state, names(models.models), names(hardware.accelerators), formats.formats);
  } catch (problem) {
    host("answer").replaceChildren();
    host("problem").textContent = `The planner does not start: ${problem instanceof Error ? problem.message : problem}`;
  }
}

void begin();
