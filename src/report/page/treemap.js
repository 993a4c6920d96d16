// What is alive at the peak, as areas: categories open into modules, modules into what is in them, down to the operator.
import { element, section } from "./dom.js";
import { bytesText, inkOf, percentText, spoken } from "./units.js";

/** @typedef {{name: string, category: string, bytes: number, count: number, children: Map<string, Branch>}} Branch */

/** @param {string} name @param {string} category @returns {Branch} */
function branch(name, category) {
  return { name, category, bytes: 0, count: 0, children: new Map() };
}

/** The groups as a tree: category, the parts of the module's path, operator. @param {any[]} alive `alive` of plimsoll/explain/1 @returns {Branch} */
export function treeOf(alive) {
  const root = branch("alive at the peak", "");
  for (const group of alive) {
    const path = group.module.split(/\.(?![^.]*-\d)/).filter((/** @type {string} */ part) => part !== "");
    const names = [spoken(group.category), ...path, ...(group.operation ? [group.operation] : [])];
    let at = root;
    for (const name of ["", ...names]) {
      if (name !== "") {
        if (!at.children.has(name)) at.children.set(name, branch(name, group.category));
        at = /** @type {Branch} */ (at.children.get(name));
      }
      at.bytes += group.bytes;
      at.count += group.count;
    }
  }
  return shortened(root);
}

/** Branches with a single child are one with it. @param {Branch} tree @returns {Branch} */
function shortened(tree) {
  const children = [...tree.children.values()].map(shortened);
  if (children.length === 1 && tree.category !== "") return { ...children[0], name: `${tree.name} › ${children[0].name}` };
  return { ...tree, children: new Map(children.map((child) => [child.name, child])) };
}

/** @typedef {{branch: Branch, x: number, y: number, width: number, height: number}} Tile */

/** The worst ratio of sides in a row of these areas along a side. @param {number[]} areas @param {number} side */
function worstRatio(areas, side) {
  const sum = areas.reduce((a, b) => a + b, 0);
  return Math.max(...areas.map((area) => Math.max((side * side * area) / (sum * sum), (sum * sum) / (side * side * area))));
}

/** Squarified (Bruls, Huizing, van Wijk 2000): rows along the shorter side, as long as that makes them squarer.
 * @param {Branch[]} branches @param {number} width @param {number} height @returns {Tile[]} */
export function tilesOf(branches, width, height) {
  const left = branches.filter((each) => each.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const total = left.reduce((sum, each) => sum + each.bytes, 0);
  /** @type {Tile[]} */
  const tiles = [];
  let x = 0, y = 0, across = width, down = height;
  while (left.length > 0) {
    const side = Math.min(across, down), area = (/** @type {Branch} */ each) => (each.bytes / total) * width * height;
    let taken = 1;
    while (taken < left.length && worstRatio(left.slice(0, taken + 1).map(area), side) <= worstRatio(left.slice(0, taken).map(area), side)) ++taken;
    const row = left.splice(0, taken), thickness = row.reduce((sum, each) => sum + area(each), 0) / side;
    let along = 0;
    for (const each of row) {
      const length = area(each) / thickness;
      tiles.push(across >= down ? { branch: each, x, y: y + along, width: thickness, height: length } : { branch: each, x: x + along, y, width: length, height: thickness });
      along += length;
    }
    if (across >= down) x += thickness, across -= thickness;
    else y += thickness, down -= thickness;
  }
  return tiles;
}

/** @param {any[]} alive @param {{allocated_bytes: number}} memory @param {any} [peak] `peak` of plimsoll/explain/1 */
export function treemapSection(alive, memory, peak) {
  if (alive.length === 0) return section("Alive at the peak", element("p", {}, peak && peak.reason ? `Not played: ${peak.reason}` : "Nothing was played."));
  const root = treeOf(alive), path = [root];
  const crumbs = element("nav", { class: "crumbs", "aria-label": "what the areas show" }), field = element("div", { class: "treemap" });
  const open = (/** @type {Branch} */ each) => { path.push(each); show(); };
  const show = () => {
    const at = path[path.length - 1];
    crumbs.replaceChildren(...path.map((each, i) => element("button", { type: "button", disabled: i === path.length - 1, onclick: () => { path.length = i + 1; show(); } }, each.name)),
      element("span", { class: "faint" }, ` ${bytesText(at.bytes)}, ${at.count} tensors, ${percentText(at.bytes / memory.allocated_bytes)} of what is allocated`));
    field.replaceChildren(...tilesOf([...at.children.values()], 100, 50).map((tile) => tileElement(tile, root.bytes, open)));
  };
  show();
  const where = peak && peak.label ? `In ${peak.phase} of step ${peak.step}, at ${peak.label}. ` : "";
  return section("Alive at the peak", element("p", { class: "faint" }, `${where}Areas open at a click.`), crumbs, field);
}

/** @param {Tile} tile @param {number} total @param {(branch: Branch) => void} open */
function tileElement(tile, total, open) {
  const { branch: each } = tile, text = `${each.name}: ${bytesText(each.bytes)}, ${percentText(each.bytes / total)}, ${each.count} tensors`;
  const opens = each.children.size > 0;
  return element("button", {
    type: "button", title: text, "aria-label": text, class: opens ? "tile opens" : "tile", "aria-disabled": opens ? undefined : "true",
    style: `left:${tile.x}%;top:${tile.y * 2}%;width:${tile.width}%;height:${tile.height * 2}%;background:${inkOf(each.category)}`,
    onclick: opens ? () => open(each) : undefined,
  }, element("b", {}, each.name), " ", bytesText(each.bytes));
}
