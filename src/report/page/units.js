// Quantities as people read them: as the command line prints them.

/** @param {number} bytes */
export function bytesText(bytes) {
  const size = Math.abs(bytes);
  if (size >= 2 ** 30) return (bytes / 2 ** 30).toFixed(2) + " GiB";
  if (size >= 2 ** 20) return (bytes / 2 ** 20).toFixed(1) + " MiB";
  return Math.round(bytes).toLocaleString("en-US") + " B";
}

/** @param {number} seconds */
export function secondsText(seconds) {
  if (seconds >= 100) return seconds.toFixed(0) + " s";
  if (seconds >= 1) return seconds.toFixed(2) + " s";
  if (seconds >= 1e-3) return (seconds * 1e3).toFixed(1) + " ms";
  return (seconds * 1e6).toFixed(1) + " µs";
}

/** @param {number} share */
export function percentText(share) {
  return (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";
}

/** "optimizer_states" as "optimizer states". @param {string} name */
export function spoken(name) {
  return name.replaceAll("_", " ");
}

/** The expected value of a number, or of a band. @param {number | {expected: number}} quantity */
export function expected(quantity) {
  return typeof quantity === "number" ? quantity : quantity.expected;
}

/** The colour of a category of memory, a kind of work or a part of a step: the same name has the same colour everywhere. Communication has its
 * group's ("data shard all gather", "exposed tensor parallel"). @param {string} name */
export function inkOf(name) {
  const known = /** @type {Record<string, number>} */ ({
    activation: 0, activations: 0, forward: 0, compute: 0, parameter: 1, parameters: 1, backward: 1, gradient: 2, gradients: 2, recompute: 2,
    recomputation: 2, optimizer_state: 3, optimizer_states: 3, optimizer: 3, host_optimizer: 3, temporary: 4, temporaries: 4, loss: 4,
    communication_buffer: 5, communication_buffers: 5, allocator_cache: 6, block_rounding: 6, bubble: 6, context: 7, host: 7, communicators: 8,
    workspace: 9, workspaces: 9, exposed_copies: 9, input: 10, inputs: 10,
  });
  const groups = /** @type {Record<string, number>} */ ({ communication: 5, data: 5, tensor: 8, context: 10, pipeline: 7, expert: 4 });
  const key = name.replaceAll(" ", "_");
  if (key in known) return `var(--ink-${known[key]})`;
  const group = key.replace(/^exposed_/, "").split("_")[0];
  if (group in groups) return `var(--ink-${groups[group]})`;
  let hash = 0;
  for (const letter of key) hash = (hash * 31 + letter.charCodeAt(0)) % 11;
  return `var(--ink-${hash})`;
}
