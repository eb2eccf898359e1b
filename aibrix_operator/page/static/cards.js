// Cards as stacked bars: a frame's cards → elements.

import { h, show, showAll } from "./dom.js";
import { gib, gibOf, many, requests } from "./words.js";

const COLOURS = 8;

/** Make `parent` hold all cards, or a sentence where there is none. */
export function showCards(parent, cards) {
  if (!cards.length) {
    show(parent, h("p", { class: "empty" }, "There is no warm Pod. Cards appear with the first Pod of a warm pool."));
    return;
  }
  const isWide = new Set(cards.map((card) => card.namespace)).size > 1;
  showAll(parent, cards, idOf, (card) => JSON.stringify([card, isWide]), (card) => drawCard(card, isWide));
}

function idOf(card) {
  return `card-${card.namespace}-${card.pod}`;
}

function drawCard(card, isWide) {
  const colours = coloursOf(card.engines);
  const id = idOf(card);
  return h(
    "article",
    { class: "card", "aria-labelledby": id },
    h(
      "div",
      { class: "card-heading" },
      h("h3", { id }, isWide ? h("span", { class: "quiet" }, `${card.namespace}/`) : null, card.pod),
      h("p", {}, factsOf(card)),
    ),
    card.hole ? h("p", { class: "warning" }, card.hole) : null,
    bar(card, colours),
    card.engines.length ? engineTable(card, colours) : h("p", { class: "empty" }, "No engine yet."),
  );
}

function factsOf(card) {
  const facts = [];
  if (card.gpus > 1) facts.push(`${card.gpus} GPUs`);
  if (!card.hasCards) facts.push("no cards: claims are placed here freely");
  else if (card.usableBytes !== null) facts.push(`${gib(card.usableBytes)} usable`);
  else facts.push("size not known");
  if (card.roomNowBytes !== null) {
    facts.push(`room for ${gib(Math.max(0, Math.min(card.roomNowBytes, card.roomEverBytes)))}`);
  }
  return [facts.join(" · "), card.ready ? null : h("span", { class: "badge bad" }, "not ready")];
}

/** The parts of one engine on its card, in bytes. */
function partsOf(engine) {
  const lent = engine.lentFootprintBytes;
  const charged = lent === null ? engine.footprintBytes : Math.max(lent - engine.kvMappedBytes, 0);
  const record = engine.kvRecordBytes;
  const inForce = engine.kvLimitBytes;
  const limit = inForce === null ? record : record ? Math.min(inForce, record) : inForce;
  const mapped = Math.min(engine.kvMappedBytes, limit);
  return { footprint: charged ?? 0, mapped, limit, unused: limit - mapped };
}

function bar(card, colours) {
  const whole = card.usableBytes ?? card.recordedBytes;
  if (!whole) return null;
  let taken = 0;
  const told = [];
  const engines = card.engines.map((engine, number) => {
    const parts = partsOf(engine);
    const name = engine.claim || engine.model;
    const size = parts.footprint + parts.limit;
    taken += size;
    const text = `${name}: footprint ${gib(parts.footprint)}, KV ${gibOf(parts.mapped, parts.limit)}`;
    told.push(text);
    return h(
      "span",
      { class: `share c${colours[number]}`, key: name, title: text, style: { flexGrow: share(size, whole) } },
      piece("footprint", parts.footprint, size, name),
      piece("mapped", parts.mapped, size),
      piece("limit", parts.unused, size),
    );
  });
  const free = Math.max(whole - taken, 0);
  told.push(`free: ${gib(free)}`);
  const rest = h("span", { class: "free", key: " free", title: `free: ${gib(free)}`, style: { flexGrow: share(free, whole) } });
  return h("div", { class: "bar", role: "img", "aria-label": told.join("; ") }, engines, rest);
}

function piece(kind, bytes, whole, name) {
  return h("span", { class: kind, style: { flexGrow: share(bytes, whole) } }, name ? h("span", { class: "name" }, name) : null);
}

/** Per mille, so that nothing is below 1 in sum: flex items share a line only when their shares sum to 1 at least. */
function share(part, whole) {
  return whole > 0 ? String(Math.round((1e6 * part) / whole) / 1000) : "0";
}

function engineTable(card, colours) {
  const head = ["Claim", "State", "Requests", "Footprint", "KV in use"];
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": `Engines on ${card.pod}` },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, `Engines on ${card.pod}`),
      h("thead", {}, h("tr", {}, head.map((text, n) => h("th", { scope: "col", class: n > 2 ? "number" : "" }, text)))),
      h("tbody", {}, card.engines.map((engine, number) => engineRow(engine, colours[number]))),
    ),
  );
}

function engineRow(engine, colour) {
  const { footprint, mapped, limit } = partsOf(engine);
  const name = engine.claim || engine.model;
  return h(
    "tr",
    { key: name },
    h("th", { scope: "row" }, h("span", { class: `swatch c${colour}` }), name, engine.claim ? null : h("span", { class: "quiet" }, " no claim")),
    h("td", {}, stateBadge(engine.state), engine.restarts ? h("span", { class: "badge bad" }, many(engine.restarts, "restart")) : null),
    h("td", {}, requests(engine)),
    h("td", { class: "number" }, engine.footprintBytes === null ? "–" : gib(footprint)),
    h("td", { class: "number", title: `KV floor ${gib(engine.kvFloorBytes)}` }, limit ? gibOf(mapped, limit) : "–"),
  );
}

/** A state in a colour that helps, and in words that suffice. */
export function stateBadge(state) {
  const kinds = { serving: "good", asleep: "calm", failed: "bad", restarting: "bad" };
  return h("span", { class: `badge ${kinds[state] ?? "busy"}` }, state);
}

/** A colour an engine: the same for the same name wherever it can be, and no two alike on a card while there are enough. */
function coloursOf(engines) {
  const taken = new Set();
  return engines.map((engine) => {
    let colour = hash(engine.claim || engine.model) % COLOURS;
    while (taken.has(colour) && taken.size < COLOURS) colour = (colour + 1) % COLOURS;
    taken.add(colour);
    return colour;
  });
}

function hash(text) {
  let value = 2166136261;
  for (const character of text) value = Math.imul(value ^ character.codePointAt(0), 16777619) >>> 0;
  return (value ^ (value >>> 15)) >>> 0;
}
