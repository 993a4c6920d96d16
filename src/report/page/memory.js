// Allocated and reserved bytes over the step, by uPlot.
/* global uPlot */
import { element, section } from "./dom.js";
import { bytesText, spoken } from "./units.js";

/** What a style sheet says of a name, for a canvas. @param {string} name */
function styled(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Phases as bands behind the lines. @param {any} memory */
function phaseBands(memory) {
  return (/** @type {any} */ plot) => {
    const { ctx, bbox } = plot, end = memory.at[memory.at.length - 1];
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px sans-serif`;
    memory.phases.forEach((/** @type {any} */ phase, /** @type {number} */ i) => {
      const from = plot.valToPos(phase.at, "x", true), to = plot.valToPos(i + 1 < memory.phases.length ? memory.phases[i + 1].at : end, "x", true);
      ctx.fillStyle = styled(i % 2 ? "--band" : "--paper");
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
      ctx.fillStyle = styled("--faint");
      if (to - from > 9 * phase.phase.length * devicePixelRatio) ctx.fillText(phase.phase, from + 4 * devicePixelRatio, bbox.top + bbox.height - 5 * devicePixelRatio);
    });
    ctx.restore();
  };
}

/** @param {any} memory `course.memory` of plimsoll/view/1 @param {number} capacity bytes; 0: not drawn */
export function courseSection(memory, capacity) {
  if (!memory || memory.at.length < 2) return section("Memory over the step", element("p", {}, "The step was not played."));
  const host = element("div", { class: "plot", role: "img", "aria-label": `allocated and reserved memory over the step; the peak is at ${memory.peak_label}` });
  const limit = memory.at.map(() => capacity / 2 ** 30);
  const gib = (/** @type {number[]} */ values) => values.map((value) => value / 2 ** 30);
  const axis = () => ({ stroke: styled("--faint"), grid: { stroke: styled("--rule") }, ticks: { stroke: styled("--rule") } });
  const line = (/** @type {string} */ label, /** @type {string} */ ink, /** @type {boolean} */ fills) => ({
    label, stroke: styled(ink), fill: fills ? styled(ink) + "44" : undefined, width: 1.5,
    value: (/** @type {any} */ _, /** @type {number | null} */ value) => (value == null ? "–" : bytesText(value * 2 ** 30)),
  });
  const draw = () => {
    host.replaceChildren();
    const options = {
      width: Math.max(280, host.clientWidth), height: 260, scales: { x: { time: false }, y: { range: (/** @type {any} */ _u, /** @type {number} */ _a, /** @type {number} */ most) => [0, most * 1.05] } },
      axes: [{ ...axis(), label: "instructions of the step, in the order of issue", labelSize: 20 }, { ...axis(), label: "GiB", labelSize: 20 }],
      series: [{ label: "instruction" }, line("reserved", "--ink-6", true), line("allocated", "--ink-0", true), ...(capacity ? [line("capacity", "--bad", false)] : [])],
      hooks: { drawClear: [phaseBands(memory)] },
    };
    // @ts-ignore uPlot stands above, or is set by the page
    new uPlot(options, [memory.at, gib(memory.reserved_bytes), gib(memory.allocated_bytes), ...(capacity ? [limit] : [])], host);
  };
  requestAnimationFrame(draw);
  let width = 0;
  new ResizeObserver(() => { if (host.clientWidth !== width) { width = host.clientWidth; draw(); } }).observe(host);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return section("Memory over the step", element("p", { class: "faint" }, `The peak is at ${spoken(memory.peak_label)}.`), host);
}
