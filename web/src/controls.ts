// The form: what is asked, and of what is offered only what the planner takes.
import { element } from "../../src/report/page/dom.js";
import type { Plan, Value } from "./plan";

/** A key of the strategy with the values that the page offers; what is offered beyond is typed. */
interface Menu {
  key: string;
  title: string;
  values: Value[];
}

const kPowers = (most: number): number[] => Array.from({ length: Math.log2(most) + 1 }, (_, i) => 2 ** i);

export const kSliders: Menu[] = [
  { key: "tp", title: "Tensor parallel", values: kPowers(16) },
  { key: "pp", title: "Pipeline parallel", values: kPowers(32) },
  { key: "cp", title: "Context parallel", values: kPowers(16) },
  { key: "ep", title: "Expert parallel", values: kPowers(64) },
  { key: "micro_batch", title: "Micro-batch", values: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256] },
  { key: "seq", title: "Sequence length", values: [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072] },
];

export const kMenus: Menu[] = [
  { key: "framework", title: "Framework", values: ["transformers", "torchtitan", "torchtune", "deepspeed", "megatron-core", "nemo", "nanotron", "llm-foundry"] },
  { key: "fsdp", title: "FSDP", values: ["full", "grad-op", "hybrid", "none"] },
  { key: "zero", title: "ZeRO stage", values: [0, 1, 2, 3] },
  { key: "precision", title: "Precision", values: ["bf16", "fp16", "fp32", "amp-bf16", "pure-bf16", "mixed-bf16", "fsdp-mixed-bf16", "fp8"] },
  { key: "optimizer", title: "Optimizer", values: ["adamw", "sgd", "sgdm", "adafactor", "lion", "adamw-8bit", "paged-adamw-8bit"] },
  { key: "recompute", title: "Recomputation", values: ["none", "full", "selective", "selective-ac-op"] },
  { key: "attention", title: "Attention", values: ["eager", "sdpa", "flash", "flex"] },
  { key: "loss", title: "Loss", values: ["ce", "chunked-ce", "liger", "liger-fused-linear"] },
  { key: "offload", title: "Offload", values: ["none", "params", "optimizer", "params+grads+optimizer", "activations"] },
  { key: "compile", title: "torch.compile", values: ["no", "blocks"] },
  { key: "schedule", title: "Pipeline schedule", values: ["1f1b", "gpipe", "interleaved_1f1b", "zbv"] },
];

/** The values that menus offer, for the planner's `choices`. */
export function offered(): Record<string, Value[]> {
  return Object.fromEntries([...kSliders, ...kMenus].map((menu) => [menu.key, menu.values]));
}

/** Why each value of each key cannot be taken; null where it can. */
export type Refused = Record<string, (string | null)[]>;

const kUnsaid = "";

export class Controls {
  private refused: Refused = {};

  constructor(private readonly form: HTMLFormElement, private readonly models: string[], private readonly devices: string[], private plan: Plan,
    private readonly changed: (plan: Plan) => void, private readonly failed: (problem: string) => void) {
    form.addEventListener("submit", (event) => event.preventDefault());
    this.draw();
  }

  show(plan: Plan): void {
    this.plan = plan;
    this.draw();
  }

  /** Greys out what cannot be taken, and says why. */
  offer(refused: Refused): void {
    this.refused = refused;
    for (const menu of kMenus) {
      const select = this.form.elements.namedItem(menu.key) as HTMLSelectElement;
      menu.values.forEach((value, i) => {
        const option = select.options[i + 1], why = refused[menu.key]?.[i] ?? null;
        option.disabled = why !== null && String(this.plan.strategy[menu.key] ?? kUnsaid) !== String(value);
        option.title = why ?? "";
      });
    }
    for (const slider of kSliders) {
      const host = this.form.querySelector(`[data-marks="${slider.key}"]`) as HTMLElement;
      host.replaceChildren(...slider.values.map((_, i) => element("i", { class: (refused[slider.key]?.[i] ?? null) === null ? "mark" : "mark no" })));
    }
    this.listReasons();
  }

  private listReasons(): void {
    const lines = [...kSliders, ...kMenus].flatMap((menu) => menu.values.map((value, i) => [menu.title, value, this.refused[menu.key]?.[i] ?? null] as const))
      .filter(([, , why]) => why !== null).map(([title, value, why]) => element("li", {}, element("b", {}, `${title} ${value}`), `: ${why}`));
    const host = this.form.querySelector(".reasons") as HTMLElement;
    host.replaceChildren(...(lines.length ? [element("details", {}, element("summary", {}, `${lines.length} settings cannot be taken with the others: why`), element("ul", {}, ...lines))] : []));
  }

  private take(change: Partial<Plan>): void {
    this.plan = { ...this.plan, ...change };
    this.changed(this.plan);
  }

  private set(key: string, value: Value | undefined): void {
    const strategy = { ...this.plan.strategy };
    if (value === undefined) delete strategy[key];
    else strategy[key] = value;
    this.take({ strategy });
  }

  private draw(): void {
    this.form.replaceChildren(
      element("fieldset", {}, element("legend", {}, "Model"), this.modelField(), this.dropField()),
      element("fieldset", {}, element("legend", {}, "Cluster"), this.deviceField(), this.numberField("perNode", "GPUs per node", 64), this.numberField("nodes", "Nodes", 4096)),
      element("fieldset", { class: "wide" }, element("legend", {}, "Strategy"), element("div", { class: "sliders" }, ...kSliders.map((each) => this.slider(each))),
        element("div", { class: "menus" }, ...kMenus.map((each) => this.menu(each)), this.wholeField("global_batch", "Global batch")), this.otherKeys(), element("div", { class: "reasons" })),
    );
    this.offer(this.refused);
  }

  private modelField(): HTMLElement {
    const own = typeof this.plan.model !== "string";
    const input = element("input", { id: "model", list: "models", value: own ? "" : (this.plan.model as string), placeholder: own ? "your own config.json" : "", autocomplete: "off",
      onchange: (event) => { if (event.target.value) this.take({ model: event.target.value.trim() }); } });
    return element("label", {}, "Name", input, element("datalist", { id: "models" }, ...this.models.map((name) => element("option", { value: name }))));
  }

  private dropField(): HTMLElement {
    const read = async (file: File | undefined) => {
      if (!file) return;
      try {
        if (file.size > 8 << 20) throw new Error("larger than 8 MiB");
        const config = JSON.parse(await file.text());
        if (typeof config !== "object" || config === null || Array.isArray(config)) throw new Error("not a JSON object");
        this.take({ model: config });
        this.draw();
      } catch (problem) {
        this.failed(`${file.name} is no config.json: ${problem instanceof Error ? problem.message : problem}`);
      }
    };
    const input = element("input", { id: "config", type: "file", accept: ".json,application/json", onchange: (event) => void read(event.target.files?.[0]) });
    return element("label", { class: "drop", ondragover: (event) => event.preventDefault(), ondrop: (event) => { event.preventDefault(); void read(event.dataTransfer.files[0]); } },
      "or drop a config.json", input);
  }

  private deviceField(): HTMLElement {
    return element("label", {}, "Device", element("select", { id: "device", onchange: (event) => this.take({ device: event.target.value }) },
      ...this.devices.map((name) => element("option", { value: name, selected: name === this.plan.device }, name))));
  }

  private numberField(key: "perNode" | "nodes", title: string, most: number): HTMLElement {
    return element("label", {}, title, element("input", { id: key, type: "number", min: 1, max: most, value: this.plan[key],
      onchange: (event) => { const value = Math.round(Number(event.target.value)); if (value >= 1 && value <= most) this.take({ [key]: value }); } }));
  }

  private wholeField(key: string, title: string): HTMLElement {
    return element("label", {}, title, element("input", { name: key, type: "number", min: 1, value: this.plan.strategy[key] ?? "", placeholder: "follows",
      onchange: (event) => { const value = Math.round(Number(event.target.value)); this.set(key, event.target.value !== "" && value >= 1 ? value : undefined); } }));
  }

  /** A slider over a list of values; its first place leaves the key unsaid. */
  private slider(menu: Menu): HTMLElement {
    const said = this.plan.strategy[menu.key], at = said === undefined ? 0 : menu.values.findIndex((value) => Number(value) >= Number(said)) + 1;
    const output = element("b", {}, said === undefined ? "not said" : String(said));
    const input = element("input", { name: menu.key, type: "range", min: 0, max: menu.values.length, step: 1, value: at, "aria-valuetext": output.textContent ?? "",
      oninput: (event) => {
        const index = Number(event.target.value), value = index === 0 ? undefined : menu.values[index - 1];
        output.textContent = value === undefined ? "not said" : String(value);
        event.target.setAttribute("aria-valuetext", output.textContent);
        this.set(menu.key, value);
      } });
    return element("label", {}, element("span", {}, menu.title, " ", output), input, element("span", { class: "marks", "data-marks": menu.key, "aria-hidden": "true" }));
  }

  private menu(menu: Menu): HTMLElement {
    const said = this.plan.strategy[menu.key];
    const values = said === undefined || menu.values.some((value) => String(value) === String(said)) ? menu.values : [...menu.values, said];
    const select = element("select", { name: menu.key, onchange: (event) => {
      const value = values.find((each) => String(each) === event.target.value);
      this.set(menu.key, value);
    } }, element("option", { value: kUnsaid, selected: said === undefined }, "as usual"), ...values.map((value) => element("option", { value, selected: String(value) === String(said) }, String(value))));
    return element("label", {}, menu.title, select);
  }

  /** Keys that no control has: a suggestion's, or a link's. */
  private otherKeys(): HTMLElement {
    const known = new Set([...kSliders, ...kMenus].map((menu) => menu.key).concat("global_batch"));
    const others = Object.entries(this.plan.strategy).filter(([key]) => !known.has(key));
    return element("p", { class: "others" }, ...others.map(([key, value]) => element("button", { type: "button", title: "leave it out",
      onclick: () => { this.set(key, undefined); this.draw(); } }, `${key} ${value} ✕`)));
  }
}
