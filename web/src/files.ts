// Files that are dropped: a config.json is a model, anything else is a run as another program has it, read by the planner.
import { normal, requestOf, type NamedText, type Plan } from "./plan";
import { Refusal, type Planner } from "./planner";

const kMost = 8 << 20;

/** What was made of some files. */
export interface Read {
  plan: Plan;
  /** "transformers, deepspeed"; empty: a model alone */
  formats: string[];
  /** [our key, its value, what says so] */
  keys: [string, string, string][];
  unread: string[];
}

async function textsOf(files: File[]): Promise<NamedText[]> {
  return Promise.all(files.map(async (file) => {
    if (file.size > kMost) throw new Error(`${file.name} is larger than 8 MiB`);
    return { name: file.name, text: await file.text() };
  }));
}

/** A config.json of Hugging Face, where the text is one. */
function configOf({ text }: NamedText): Record<string, unknown> | undefined {
  try {
    const config = JSON.parse(text);
    return config !== null && typeof config === "object" && ("model_type" in config || "architectures" in config || "_class_name" in config) ? config : undefined;
  } catch {
    return undefined;
  }
}

/** Where the files say how many devices there are, they count; where they do not, the plan's do. */
async function runOf(planner: Planner, files: NamedText[], plan: Plan): Promise<any> {
  try {
    return await planner.call({ command: "read", files, on: plan.device });
  } catch (problem) {
    if (!(problem instanceof Refusal) || !/how many devices/.test(problem.message)) throw problem;
    return planner.call({ command: "read", files, on: requestOf("read", plan).on });
  }
}

/** Throws what is wrong with the files. */
export async function read(planner: Planner, given: File[], plan: Plan): Promise<Read> {
  const files = await textsOf(given), config = files.length === 1 ? configOf(files[0]) : undefined;
  if (config) return { plan: { ...plan, model: config }, formats: [], keys: [], unread: [] };
  const run = await runOf(planner, files, plan);
  return {
    plan: { model: run.model, device: run.cluster.device, nodes: run.cluster.nodes, perNode: run.cluster.gpus_per_node, strategy: normal(run.options) },
    formats: run.formats, unread: run.unread,
    keys: run.keys.map((key: any) => [key.key, key.value, key.kind === "said" ? `${key.where} ${key.foreign}` : key.kind === "derived" ? `follows: ${key.where}` : `default of ${key.where}`]),
  };
}
