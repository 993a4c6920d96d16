// Why a run fits or does not, in two sentences: what lies there all the time, and what a micro-batch adds.
import { bytesText, expected, percentText, spoken } from "./units.js";

const kStates = ["parameters", "gradients", "optimizer_states"], kOfBatch = ["activations", "temporaries", "inputs"];

/** The largest of some categories. @param {Record<string, number>} categories @param {string[]} names */
function largestOf(categories, names) {
  return names.reduce((best, name) => ((categories[name] ?? 0) > (categories[best] ?? 0) ? name : best), names[0]);
}

/** @param {any} memory `memory` of plimsoll/estimate/1 @param {string} verdict */
export function whyText(memory, verdict) {
  const sum = (/** @type {string[]} */ names) => names.reduce((all, name) => all + (memory.categories[name] ?? 0), 0);
  const states = sum(kStates), batch = sum(kOfBatch), device = expected(memory.device_bytes), capacity = memory.capacity_bytes;
  const kept = `Parameters, gradients and optimizer states take ${bytesText(states)} of each GPU`;
  const most = spoken(largestOf(memory.categories, kOfBatch)), added = `What a micro-batch adds takes ${bytesText(batch)}, most of it ${most}`;
  if (!verdict.startsWith("does")) {
    const margin = verdict === "tight" ? "That is less room than the estimate is sure of." : `${percentText(1 - device / capacity)} of the GPU stay free.`;
    return `${kept}. ${added}. ${margin}`;
  }
  const share = "they must be shared by more GPUs, kept in fewer bytes, or leave the GPU", shorter = "smaller micro-batches, shorter sequences or recomputation make it less";
  if (states > capacity)
    return `${kept}: more than it has, whatever the batch; ${share}. ${added}${batch > capacity ? `: also more than it has; ${shorter}` : ""}.`;
  if (batch > capacity) return `${kept}, which would fit. ${added}: more than it has, whoever shares the states; ${shorter}.`;
  return states > batch ? `${kept}, which leaves ${bytesText(capacity - states)} for everything else; ${share}. ${added}.` : `${kept}, which would fit. ${added}; ${shorter}.`;
}
