// The state of the page: what is asked. All of it fits into a link.

export type Value = string | number;

/** A file of another program, handed over. */
export interface NamedText {
  name: string;
  text: string;
}

/** A shipped model's name, a config.json, or the model that files of other programs describe. */
export type ModelRequest = string | ({ files?: NamedText[] } & Record<string, unknown>);

export interface Plan {
  model: ModelRequest;
  device: string;
  perNode: number;
  nodes: number;
  /** Keys of docs/rows.md as the command line takes them; a key that is not here is the framework's choice. */
  strategy: Record<string, Value>;
}

/** What a link holds: the plan, and the one that is kept beside it. */
export interface State {
  plan: Plan;
  kept?: Plan;
}

export const kFirstPlan: Plan = {
  model: "llama-3.1-8b", device: "mi300x", perNode: 8, nodes: 1,
  strategy: { data_parallel: "fsdp", micro_batch: 2, seq: 8192 },
};

/** Runs to begin from, with what they show. */
export const kExamples: { title: string; plan: Plan }[] = [
  { title: "70B on one node", plan: { model: "llama-3.1-70b", device: "h100-sxm", perNode: 8, nodes: 1, strategy: { data_parallel: "fsdp", micro_batch: 1, seq: 8192 } } },
  { title: "8B with LoRA at home", plan: { model: "llama-3.1-8b", device: "rtx4090", perNode: 1, nodes: 1, strategy: { "lora.r": 16, precision: "pure-bf16", micro_batch: 1, seq: 2048, recompute: "full" } } },
  { title: "405B on 16,384 GPUs", plan: { model: "llama-3.1-405b", device: "h100-sxm", perNode: 8, nodes: 2048, strategy: { framework: "megatron-core", tp: 8, pp: 16, micro_batch: 1, global_batch: 2048, seq: 8192 } } },
];

/** Short spellings of keys, and keys that say what another one says: one control each. */
const kSpelling: Record<string, string> = { seq_len: "seq", pp_schedule: "schedule" };
const kSharding: Record<string, string> = { full: "fsdp", hybrid: "hsdp" };

/** The same strategy in the words of the page's controls. */
export function normal(strategy: Record<string, Value>): Record<string, Value> {
  const out: Record<string, Value> = {};
  for (const [key, value] of Object.entries(strategy)) {
    if (key === "fsdp" && String(value) in kSharding && !("data_parallel" in strategy)) out.data_parallel = kSharding[String(value)];
    else if ((key === "zero" || key === "zero_stage") && !("data_parallel" in strategy)) out.data_parallel = `zero${value}`;
    else out[kSpelling[key] ?? key] = value;
  }
  return out;
}

export function clusterOf(plan: Plan): string {
  return plan.nodes > 1 ? `${plan.nodes}x${plan.perNode}x${plan.device}` : `${plan.perNode}x${plan.device}`;
}

export function requestOf(command: string, plan: Plan): Record<string, unknown> {
  return { command, model: plan.model, on: clusterOf(plan), options: plan.strategy };
}

/** How the model is called: a name, or what the files or the config say. */
export function modelName(plan: Plan): string {
  if (typeof plan.model === "string") return plan.model;
  if (plan.model.files) return plan.model.files.map((file) => file.name).join(", ");
  return "config.json";
}

function quoted(word: string): string {
  return /^[\w.+\-/,:@%=]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The same question for the command line. */
export function commandLine(plan: Plan, command = "estimate"): string {
  const flags = Object.entries(plan.strategy).map(([key, value]) => ` --${key.replaceAll("_", "-")} ${quoted(String(value))}`).join("");
  if (typeof plan.model !== "string" && plan.model.files) return `plimsoll ${command}${plan.model.files.map((file) => ` --from ${quoted(file.name)}`).join("")} --on ${clusterOf(plan)}`;
  return `plimsoll ${command} ${quoted(modelName(plan))} --on ${clusterOf(plan)}${flags}`;
}

/** `--micro-batch 1 --global-batch 16`, as a suggestion has it, on top of the plan. */
export function withFlags(plan: Plan, flags: string): Plan {
  const strategy = { ...plan.strategy };
  const words = flags.match(/'[^']*'|\S+/g) ?? [];
  for (let i = 0; i + 1 < words.length; i += 2) Object.assign(strategy, normal({ [words[i].slice(2).replaceAll("-", "_")]: words[i + 1].replace(/^'|'$/g, "") }));
  return { ...plan, strategy };
}

async function through(bytes: Uint8Array<ArrayBuffer>, stream: TransformStream): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

export async function encoded({ plan, kept }: State): Promise<string> {
  const packed = await through(new TextEncoder().encode(JSON.stringify(kept ? { ...plan, kept } : plan)), new CompressionStream("deflate-raw"));
  let text = "";
  for (const byte of packed) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function isPlan(value: any): value is Plan {
  const whole = (number: unknown): boolean => Number.isInteger(number) && (number as number) > 0;
  const object = (each: unknown): boolean => typeof each === "object" && each !== null;
  return object(value) && (typeof value.model === "string" || object(value.model)) && typeof value.device === "string" && whole(value.perNode) && whole(value.nodes) &&
    object(value.strategy);
}

const inOurWords = (plan: Plan): Plan => ({ ...plan, strategy: normal(plan.strategy) });

/** Throws where the text is no plan: links are typed and cut by people. */
export async function decoded(text: string): Promise<State> {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const { kept, ...plan } = JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
  if (!isPlan(plan) || (kept !== undefined && !isPlan(kept))) throw new Error("the link holds no plan");
  return { plan: inOurWords(plan), kept: kept && inOurWords(kept) };
}
