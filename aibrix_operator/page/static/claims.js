// Claims and why they are where they are: a frame's claims → one table.

import { stateBadge } from "./cards.js";
import { h, show, showAll } from "./dom.js";
import { age, gib } from "./words.js";

const COLUMNS = ["Claim", "Phase", "Where", "Needs", "Why", "For"];
const PHASES = { Active: "good", Sleeping: "calm", Failed: "bad" };
const FITS = { yes: "good", later: "busy", no: "bad", unknown: "calm" };

export function keyOf(claim) {
  return `${claim.namespace}/${claim.name}`;
}

/** Which of the filter's kinds a claim is. */
function kindOf(claim) {
  if (!claim.states.length) return claim.phase === "Deleting" ? "" : "waiting";
  return claim.states.includes("serving") ? "serving" : claim.states.includes("asleep") ? "asleep" : "";
}

function matches(claim, filter) {
  if (filter.kind !== "all" && kindOf(claim) !== filter.kind) return false;
  const texts = [keyOf(claim), claim.model, claim.reason, claim.phase, ...claim.pods];
  return texts.some((text) => text.toLowerCase().includes(filter.text));
}

/** Make `parent` hold the claims that `filter` lets through. `opened`: key → the claim's report, or null while it is
 *  asked for. */
export function showClaims(parent, claims, filter, opened, now) {
  const shown = claims.filter((claim) => matches(claim, filter));
  if (!shown.length) {
    const none = claims.length ? `None of ${claims.length} claims is such a one.` : "There is no ModelClaim. Apply one, and it appears here.";
    show(parent, h("p", { class: "empty" }, none));
    return;
  }
  if (parent.querySelector("table.claims") === null) show(parent, emptyTable());
  const isWide = new Set(claims.map((claim) => claim.namespace)).size > 1;
  const rows = shown.flatMap((claim) => (opened.has(keyOf(claim)) ? [{ claim, isDetail: false }, { claim, isDetail: true }] : [{ claim, isDetail: false }]));
  const key = ({ claim, isDetail }) => (isDetail ? `${keyOf(claim)} about` : keyOf(claim));
  const sign = ({ claim, isDetail }) => JSON.stringify([claim, isWide, ages(claim, now), opened.has(keyOf(claim)), isDetail && opened.get(keyOf(claim))]);
  const draw = ({ claim, isDetail }) => (isDetail ? detail(claim, opened, now) : row(claim, isWide, opened, now));
  showAll(parent.querySelector("table.claims").tBodies[0], rows, key, sign, draw);
}

function emptyTable() {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of claims" },
    h(
      "table",
      { class: "claims" },
      h("caption", { class: "hidden" }, "Claims, by name"),
      h("thead", {}, h("tr", {}, COLUMNS.map((text) => h("th", { scope: "col", class: text === "Needs" ? "number" : "" }, text)))),
      h("tbody"),
    ),
  );
}

function ages(claim, now) {
  return [claim.since, ...claim.conditions.map((condition) => condition.since)].map((time) => age(time, now));
}

function row(claim, isWide, opened, now) {
  const key = keyOf(claim);
  const isOpen = opened.has(key);
  const needs = claim.footprintBytes === null ? null : claim.footprintBytes + claim.kvFloorBytes;
  return h(
    "tr",
    { class: isOpen ? "open" : "" },
    h(
      "th",
      { scope: "row" },
      h(
        "button",
        { type: "button", "data-claim": key, "aria-expanded": String(isOpen), "aria-controls": isOpen ? `about-${key}` : null },
        isWide ? h("span", { class: "quiet" }, `${claim.namespace}/`) : null,
        claim.name,
      ),
      claim.model === claim.name ? null : h("div", { class: "quiet" }, claim.model),
    ),
    h("td", {}, h("span", { class: `badge ${PHASES[claim.phase] ?? "busy"}` }, claim.phase)),
    h("td", {}, claim.pods.length ? claim.pods.map((pod) => h("div", { key: pod }, pod)) : h("span", { class: "quiet" }, "no card")),
    h("td", { class: "number" }, gib(needs), needs === null ? null : h("div", { class: "quiet", title: "footprint + KV floor" }, `${gib(claim.footprintBytes, "")}+ ${gib(claim.kvFloorBytes, "")}`)),
    h("td", { class: "why" }, h("strong", {}, claim.reason), " ", h("span", {}, claim.message)),
    h("td", { class: "age" }, age(claim.since, now)),
  );
}

function detail(claim, opened, now) {
  const key = keyOf(claim);
  const report = opened.get(key);
  const told = report === null ? h("p", { class: "quiet" }, "Asking the operator …") : report.error ? h("p", { class: "warning" }, report.error) : explain(report);
  return h("tr", { class: "about", id: `about-${key}` }, h("td", { colspan: String(COLUMNS.length) }, conditions(claim, now), told));
}

function conditions(claim, now) {
  const head = ["Condition", "Status", "Reason and message", "For"];
  return h(
    "table",
    {},
    h("caption", {}, "What the operator has said"),
    h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
    h(
      "tbody",
      {},
      claim.conditions.map((c) =>
        h("tr", { key: c.type }, h("th", { scope: "row" }, c.type), h("td", {}, h("span", { class: `badge ${c.status === "True" ? "good" : "busy"}` }, c.status)), h("td", { class: "why" }, h("strong", {}, c.reason), " ", c.message), h("td", { class: "age" }, age(c.since, now))),
      ),
    ),
  );
}

function explain(report) {
  const parts = [];
  if (report.candidates.length) parts.push(candidates(report));
  if (report.suggestions.length) {
    parts.push(
      h("p", { class: "caption" }, "What would make room"),
      h("ul", {}, report.suggestions.map((s) => h("li", {}, `on ${s.pod}: delete ${s.delete.join(", ") || "nothing more"}` + (s.leaving.length ? ` (${s.leaving.join(", ")} is leaving)` : "") + `, which frees ${gib(s.freedBytes)}`))),
    );
  }
  if (report.olderWaiting.length) parts.push(h("p", {}, `Older claims that are tried first: ${report.olderWaiting.join(", ")}.`));
  return parts;
}

function candidates(report) {
  const head = ["Candidate Pod", "Usable", "Promised", "Held", "Room ever", "Room now", "Fits", "What it lacks"];
  return h(
    "table",
    {},
    h("caption", {}, report.outcome === "placed" ? "The cards that it may be on" : "What each card offers now"),
    h("thead", {}, h("tr", {}, head.map((text, n) => h("th", { scope: "col", class: n > 0 && n < 6 ? "number" : "" }, text)))),
    h(
      "tbody",
      {},
      report.candidates.map((card) =>
        h(
          "tr",
          { key: card.pod },
          h("th", { scope: "row" }, card.pod),
          [card.usableBytes, card.promisedBytes, card.heldBytes, card.roomEverBytes, card.roomNowBytes].map((b) => h("td", { class: "number" }, gib(b))),
          h("td", {}, report.where.split(", ").includes(card.pod) && report.outcome === "placed" ? stateBadge(report.state || "here") : h("span", { class: `badge ${FITS[card.fits]}` }, card.fits)),
          h("td", {}, card.whyNot),
        ),
      ),
    ),
  );
}
