// The form: what is asked, and of what is offered only what the planner takes.
import { element } from "../../src/report/page/dom.js";
import { bytesText, spoken } from "../../src/report/page/units.js";
import { kExamples, modelName, type Plan, type Value } from "./plan";

/** A key of the strategy with the values that the page offers; what is offered beyond is typed. */
interface Menu {
  key: string;
  title: string;
  values: Value[];
  /** what a value is called, where its name does not say it */
  labels?: Record<string, string>;
}

const kPowers = (most: number): number[] => Array.from({ length: Math.log2(most) + 1 }, (_, i) => 2 ** i);

const kBatch: Menu[] = [
  { key: "micro_batch", title: "Micro-batch", values: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256] },
  { key: "seq", title: "Sequence length", values: [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072] },
];
const kDegrees: Menu[] = [
  { key: "tp", title: "Tensor parallel", values: kPowers(16) },
  { key: "pp", title: "Pipeline parallel", values: kPowers(32) },
  { key: "cp", title: "Context parallel", values: kPowers(16) },
  { key: "ep", title: "Expert parallel", values: kPowers(64) },
];
export const kSliders: Menu[] = [...kBatch, ...kDegrees];
export const kNodes = kPowers(4096);

const kWho: Menu = { key: "framework", title: "Framework", values: ["transformers", "accelerate", "torchtitan", "torchtune", "deepspeed", "megatron-core", "nemo", "nanotron", "llm-foundry"] };
const kSharing: Menu = {
  key: "data_parallel", title: "Who shares the states", values: ["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hsdp", "megatron-distopt", "megatron-fsdp"],
  labels: { none: "nobody", ddp: "nobody: DDP, a copy each", zero1: "ZeRO-1: optimizer states", zero2: "ZeRO-2: and gradients", zero3: "ZeRO-3: and parameters", fsdp: "FSDP: all of them",
    fsdp1: "FSDP 1: all of them", hsdp: "HSDP: within a node", "megatron-distopt": "Megatron's distributed optimizer", "megatron-fsdp": "Megatron FSDP" },
};
const kSchedule: Menu = { key: "schedule", title: "Pipeline schedule", values: ["1f1b", "gpipe", "interleaved_1f1b", "zbv"] };
const kMeans: Menu[] = [
  { key: "recompute", title: "Recomputation", values: ["none", "full", "selective", "selective-ac-op"] },
  { key: "precision", title: "Precision", values: ["bf16", "fp16", "fp32", "amp-bf16", "pure-bf16", "mixed-bf16", "fsdp-mixed-bf16", "fp8"] },
  { key: "optimizer", title: "Optimizer", values: ["adamw", "sgd", "sgdm", "adafactor", "lion", "adamw-8bit", "paged-adamw-8bit"] },
  { key: "lora.r", title: "LoRA", values: [8, 16, 32, 64, 128], labels: { 8: "rank 8", 16: "rank 16", 32: "rank 32", 64: "rank 64", 128: "rank 128" } },
  { key: "attention", title: "Attention", values: ["eager", "sdpa", "flash", "flex"] },
  { key: "loss", title: "Loss", values: ["ce", "chunked-ce", "liger", "liger-fused-linear"] },
  { key: "offload", title: "Offload", values: ["none", "params", "optimizer", "params+grads+optimizer", "activations"] },
  { key: "compile", title: "torch.compile", values: ["false", "blocks"], labels: { false: "no" } },
];
export const kMenus: Menu[] = [kWho, kSharing, kSchedule, ...kMeans];

/** The values that menus offer, for the planner's `choices`. */
export function offered(): Record<string, Value[]> {
  return Object.fromEntries([...kSliders, ...kMenus].map((menu) => [menu.key, menu.values]));
}

/** What the planner says of what is offered: why a value cannot be taken (null where it can), and what is taken where nothing is said. */
export interface Choices {
  refused: Record<string, (string | null)[]>;
  taken: Record<string, string>;
}

/** What a value of a slider would do. */
export interface Outcome {
  verdict: string;
  bytes: number;
}

const kUnsaid = "";
const label = (menu: Menu, value: Value): string => menu.labels?.[String(value)] ?? String(value);

/** What the form tells. */
export interface Listener {
  changed(plan: Plan): void;
  dropped(files: File[]): void;
}

export class Controls {
  private choices: Choices = { refused: {}, taken: {} };

  constructor(private readonly form: HTMLFormElement, private readonly models: string[], private readonly devices: string[], private plan: Plan, private readonly listener: Listener) {
    form.addEventListener("submit", (event) => event.preventDefault());
    this.draw();
  }

  show(plan: Plan): void {
    this.plan = plan;
    this.draw();
  }

  /** Greys out what cannot be taken, says why, and what is taken where nothing is said. */
  offer(choices: Choices): void {
    this.choices = choices;
    for (const menu of kMenus) {
      const select = this.form.elements.namedItem(menu.key) as HTMLSelectElement;
      select.options[0].textContent = this.unsaid(menu);
      menu.values.forEach((value, i) => {
        const option = select.options[i + 1], why = this.refusal(menu, i);
        option.disabled = why !== null && String(this.plan.strategy[menu.key] ?? kUnsaid) !== String(value);
        option.title = why ?? "";
      });
    }
    for (const slider of kSliders) {
      this.name(slider);
      slider.values.forEach((_, i) => { if (this.refusal(slider, i) !== null) this.mark(slider.key, i, "refused", `${slider.title} ${slider.values[i]} cannot be taken`); });
    }
    this.listReasons();
  }

  /** A mark below a slider: what the plan with that value does. */
  foresee(key: string, index: number, { verdict, bytes }: Outcome): void {
    this.mark(key, index, verdict, `${verdict.replaceAll("_", " ")}, ${bytesText(bytes)}`);
  }

  /** Marks of another plan say nothing of this one. */
  forget(): void {
    for (const mark of this.form.querySelectorAll(".marks .mark:not(.unsaid)")) mark.className = "mark";
  }

  refusal(menu: { key: string }, index: number): string | null {
    return this.choices.refused[menu.key]?.[index] ?? null;
  }

  private mark(key: string, index: number, kind: string, title: string): void {
    const mark = this.form.querySelector(`[data-marks="${key}"]`)?.querySelector(`[data-at="${index}"]`);
    if (!mark) return;
    mark.className = `mark ${kind}`;
    mark.setAttribute("title", title);
  }

  private unsaid(menu: Menu): string {
    const taken = this.choices.taken[menu.key];
    return taken === undefined || menu.key in this.plan.strategy ? "as usual" : `as usual: ${label(menu, taken)}`;
  }

  private listReasons(): void {
    const lines = [...kSliders, ...kMenus].flatMap((menu) => menu.values.map((value, i) => [menu.title, value, this.refusal(menu, i)] as const))
      .filter(([, , why]) => why !== null).map(([title, value, why]) => element("li", {}, element("b", {}, `${title} ${value}`), `: ${why}`));
    const host = this.form.querySelector(".reasons") as HTMLElement;
    host.replaceChildren(...(lines.length ? [element("details", {}, element("summary", {}, `${lines.length} settings cannot be taken with the others: why`), element("ul", {}, ...lines))] : []));
  }

  private take(change: Partial<Plan>): void {
    this.plan = { ...this.plan, ...change };
    this.forget();
    this.listener.changed(this.plan);
  }

  private set(key: string, value: Value | undefined): void {
    const strategy = { ...this.plan.strategy };
    if (value === undefined) delete strategy[key];
    else strategy[key] = value;
    this.take({ strategy });
  }

  private draw(): void {
    const narrow = matchMedia("(max-width: 60rem)").matches;
    const folded = (title: string, ...fields: HTMLElement[]) => element("fieldset", {}, element("details", { open: !narrow }, element("summary", {}, title), ...fields));
    this.form.replaceChildren(
      element("fieldset", {}, element("legend", {}, "Model"), this.modelField(), this.dropField(), this.examples()),
      element("fieldset", {}, element("legend", {}, "Cluster"), this.deviceField(), element("div", { class: "pair" }, this.numberField("perNode", "GPUs per node", 64), this.numberField("nodes", "Nodes", 16384)), this.nodesSlider()),
      element("fieldset", {}, element("legend", {}, "Batch"), ...kBatch.map((each) => this.slider(each)), this.wholeField("global_batch", "Global batch"), this.marksKey()),
      folded("Parallelism", this.menu(kWho), this.menu(kSharing), ...kDegrees.map((each) => this.slider(each)), this.menu(kSchedule)),
      folded("Memory and speed", ...kMeans.map((each) => this.menu(each))), element("div", {}, this.otherKeys(), element("div", { class: "reasons" })),
    );
    this.offer(this.choices);
  }

  private marksKey(): HTMLElement {
    const key = (kind: string, text: string) => element("span", { class: `mark ${kind}` }, text);
    return element("p", { class: "marks-key" }, key("fits", "fits"), key("tight", "tight"), key("does_not_fit", "does not fit"), key("refused", "cannot be taken"));
  }

  private modelField(): HTMLElement {
    const own = typeof this.plan.model !== "string";
    const input = element("input", { id: "model", list: "models", value: own ? "" : (this.plan.model as string), placeholder: own ? modelName(this.plan) : "", autocomplete: "off", spellcheck: "false",
      onchange: (event) => { if (event.target.value) this.take({ model: event.target.value.trim() }); } });
    return element("label", {}, "Name", input, element("datalist", { id: "models" }, ...this.models.map((name) => element("option", { value: name }))));
  }

  private dropField(): HTMLElement {
    const input = element("input", { id: "config", type: "file", multiple: true, onchange: (event) => { this.listener.dropped([...event.target.files]); event.target.value = ""; } });
    return element("label", { class: "drop", title: "a config.json; files of Accelerate, DeepSpeed, transformers, torchtitan, torchtune, axolotl, LLaMA-Factory, Megatron-LM …; a launch script" }, "or drop a config.json, a recipe or a launch script", input);
  }

  private examples(): HTMLElement {
    return element("p", { class: "examples" }, ...kExamples.map(({ title, plan }) => element("button", { type: "button", class: "plain", onclick: () => { this.take(plan); this.draw(); } }, title)));
  }

  private deviceField(): HTMLElement {
    return element("label", {}, "Device", element("select", { id: "device", onchange: (event) => this.take({ device: event.target.value }) },
      ...this.devices.map((name) => element("option", { value: name, selected: name === this.plan.device }, name))));
  }

  private numberField(key: "perNode" | "nodes", title: string, most: number): HTMLElement {
    return element("label", {}, title, element("input", { id: key, type: "number", min: 1, max: most, value: this.plan[key],
      onchange: (event) => { const value = Math.round(Number(event.target.value)); if (value >= 1 && value <= most) { this.take({ [key]: value }); if (key === "nodes") this.place("nodes-slider", value); } } }));
  }

  private place(id: string, nodes: number): void {
    (this.form.querySelector(`#${id}`) as HTMLInputElement).value = String(Math.max(0, kNodes.findIndex((each) => each >= nodes)));
  }

  private nodesSlider(): HTMLElement {
    const input = element("input", { id: "nodes-slider", type: "range", min: 0, max: kNodes.length - 1, step: 1, value: Math.max(0, kNodes.findIndex((each) => each >= this.plan.nodes)), "aria-label": "Nodes",
      oninput: (event) => {
        const nodes = kNodes[Number(event.target.value)];
        event.target.setAttribute("aria-valuetext", `${nodes} nodes`);
        (this.form.querySelector("#nodes") as HTMLInputElement).value = String(nodes);
        this.take({ nodes });
      } });
    return element("div", {}, input, this.marks("nodes", kNodes, false));
  }

  private marks(key: string, values: Value[], withUnsaid: boolean): HTMLElement {
    return element("span", { class: "marks", "data-marks": key, "aria-hidden": "true" }, ...(withUnsaid ? [element("i", { class: "mark unsaid" })] : []),
      ...values.map((_, i) => element("i", { class: "mark", "data-at": i })));
  }

  private wholeField(key: string, title: string): HTMLElement {
    return element("label", {}, title, element("input", { name: key, type: "number", min: 1, value: this.plan.strategy[key] ?? "", placeholder: "follows",
      onchange: (event) => { const value = Math.round(Number(event.target.value)); this.set(key, event.target.value !== "" && value >= 1 ? value : undefined); } }));
  }

  /** The value of a slider in words. */
  private name(menu: Menu): void {
    const said = this.plan.strategy[menu.key], taken = this.choices.taken[menu.key];
    const output = this.form.querySelector(`[data-value="${menu.key}"]`) as HTMLElement, input = this.form.elements.namedItem(menu.key) as HTMLInputElement;
    output.textContent = said === undefined ? (taken === undefined ? "as usual" : `as usual: ${taken}`) : Number(said).toLocaleString("en-US");
    output.className = said === undefined ? "unsaid" : "";
    input.setAttribute("aria-valuetext", output.textContent);
  }

  /** A slider over a list of values; its first place leaves the key unsaid. */
  private slider(menu: Menu): HTMLElement {
    const said = this.plan.strategy[menu.key], at = said === undefined ? 0 : menu.values.findIndex((value) => Number(value) >= Number(said)) + 1;
    const input = element("input", { name: menu.key, type: "range", min: 0, max: menu.values.length, step: 1, value: at,
      oninput: (event) => {
        const index = Number(event.target.value);
        this.set(menu.key, index === 0 ? undefined : menu.values[index - 1]);
        this.name(menu);
      } });
    return element("label", {}, element("span", {}, menu.title, element("b", { "data-value": menu.key })), input, this.marks(menu.key, menu.values, true));
  }

  private menu(menu: Menu): HTMLElement {
    const said = this.plan.strategy[menu.key];
    const values = said === undefined || menu.values.some((value) => String(value) === String(said)) ? menu.values : [...menu.values, said];
    const select = element("select", { name: menu.key, onchange: (event) => this.set(menu.key, values.find((each) => String(each) === event.target.value)) },
      element("option", { value: kUnsaid, selected: said === undefined }, this.unsaid(menu)), ...values.map((value) => element("option", { value, selected: String(value) === String(said) }, label(menu, value))));
    return element("label", {}, menu.title, select);
  }

  /** Keys that no control has: a suggestion's, a file's, or a link's. */
  private otherKeys(): HTMLElement {
    const known = new Set([...kSliders, ...kMenus].map((menu) => menu.key).concat("global_batch"));
    const others = Object.entries(this.plan.strategy).filter(([key]) => !known.has(key));
    return element("p", { class: "others" }, ...others.map(([key, value]) => element("button", { type: "button", title: `leave ${spoken(key)} out`,
      onclick: () => { this.set(key, undefined); this.draw(); } }, `${key} ${value} ✕`)));
  }
}
