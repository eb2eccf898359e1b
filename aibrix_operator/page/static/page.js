// Asks for the newest frame again and again, and draws it.

import { showCards } from "./cards.js";
import { keyOf, showClaims } from "./claims.js";
import { h, show } from "./dom.js";
import { gib, gibOf, many } from "./words.js";

const EVERY_MS = 1000;
const SLOWEST_MS = 15000;

const at = (id) => document.getElementById(id);
const opened = new Map();
const filter = { text: "", kind: "all" };
let frame = null;
let skewMs = 0; // the server's clock less ours, so that ages agree with its times
let heardAt = null;
let failures = 0;

function draw() {
  if (frame === null) return;
  const now = Date.now() + skewMs;
  at("scope").textContent = frame.scope;
  document.title = `${many(frame.totals.serving, "engine")} serving, ${frame.totals.waiting} waiting – aibrix-operator`;
  show(at("warnings"), frame.warnings.map((text) => h("p", { class: "warning" }, text)));
  show(at("totals"), drawTotals(frame.totals));
  showCards(at("cards"), frame.cards);
  showClaims(at("claim-table"), frame.claims, filter, opened, now);
  document.querySelector("main").setAttribute("aria-busy", "false");
}

function drawTotals(totals) {
  const tile = (key, name, figure, note, meter) =>
    h("div", { key }, h("dt", {}, name), h("dd", {}, h("span", { class: "figure" }, figure), h("span", { class: "quiet" }, note), meter ?? null));
  const full = totals.usableBytes ? totals.promisedBytes / totals.usableBytes : 0;
  const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: `${Math.min(100, 100 * full)}%` } }));
  const unread = totals.unreadableCards ? `, ${totals.unreadableCards} unreadable` : "";
  return [
    tile("promised", "Promised", gib(totals.promisedBytes), `of ${gib(totals.usableBytes)} on ${many(totals.cards, "card")}${unread}`, meter),
    tile("engines", "Engines", String(totals.serving), `serving, ${totals.asleep} asleep, ${totals.engines} in all`),
    tile("kv", "KV in use", gib(totals.kvMappedBytes), "mapped by engines now"),
    tile("claims", "Waiting", String(totals.waiting), `of ${many(totals.claims, "claim")}, ${totals.failed} failed`),
  ];
}

function say(kind, text) {
  const live = at("live");
  live.className = `live ${kind}`;
  if (live.textContent !== text) live.textContent = text; // a screen reader is told of changes only
}

async function ask() {
  const headers = frame === null ? {} : { "If-None-Match": frame.etag };
  const answer = await fetch("api/frame", { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
  const told = Date.parse(answer.headers.get("Date"));
  if (!Number.isNaN(told)) skewMs = told - Date.now();
  if (answer.status === 304) return;
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  frame = { ...body, etag: answer.headers.get("ETag") };
  for (const claim of frame.claims) if (opened.has(keyOf(claim))) askAbout(keyOf(claim));
}

async function askAbout(key) {
  try {
    const answer = await fetch(`api/claims/${key.split("/").map(encodeURIComponent).join("/")}`, { cache: "no-store" });
    if (opened.has(key)) opened.set(key, await answer.json());
  } catch {
    // The next frame says that nobody answers, and asks again.
    return;
  }
  draw();
}

async function follow() {
  for (;;) {
    if (!document.hidden) {
      try {
        await ask();
        failures = 0;
        heardAt = new Date();
        say("on", "live");
      } catch (error) {
        failures += 1;
        const since = heardAt ? `as of ${heardAt.toLocaleTimeString()}: ` : "";
        say("off", `${since}${error.message === "Failed to fetch" ? "the operator does not answer" : error.message}`);
      }
      draw();
    }
    const pause = Math.min(EVERY_MS * 2 ** Math.min(failures, 5), SLOWEST_MS);
    await new Promise((done) => {
      const timer = setTimeout(done, pause);
      document.addEventListener("visibilitychange", () => (clearTimeout(timer), done()), { once: true });
    });
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-claim]");
  if (button === null) return;
  const key = button.dataset.claim;
  if (!opened.delete(key)) {
    opened.set(key, null);
    askAbout(key);
  }
  draw();
});

at("filter").addEventListener("input", () => {
  const form = new FormData(at("filter"));
  filter.text = form.get("text").trim().toLowerCase();
  filter.kind = form.get("kind");
  draw();
});
at("filter").addEventListener("submit", (event) => event.preventDefault());

follow();
