"use strict";
// The page is whole without this script: it adds tooltips, zooming, the timeline, and news of a run that goes on.
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const hidden = new Set();
const logs = new Set();
const make = (name, look, text) => {
  const node = document.createElement(name);
  node.className = look || "";
  if (text !== undefined) node.textContent = text;
  return node;
};
const number = (v) => (v === null ? "no number" : Number(v.toPrecision(5)).toString());

function showTip(event, nodes) {
  tip.replaceChildren(...nodes);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 14 : event.clientX + 14;
  tip.style.left = `${Math.max(4, Math.min(x, innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4))}px`;
}
const hideTip = () => { tip.hidden = true; };

// --- charts ---------------------------------------------------------------------------------------------------------
const inside = { left: 54, right: 14, top: 26, bottom: 38 };

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

function point(svg, event) {
  const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  const [low, high] = svg.dataset.axes.split(" ").map(Number);
  const part = ((event.clientX - box.left) / box.width * view.width - inside.left) / (view.width - inside.left - inside.right);
  const step = low + Math.max(0, Math.min(1, part)) * (high - low);
  const lines = data.charts[svg.dataset.key].lines.filter((line) => !hidden.has(line.run) && line.x.length);
  if (!lines.length) return clear(svg);
  const at = lines.map((line) => nearest(line.x, step));
  const closest = lines.reduce((best, line, i) => Math.abs(line.x[at[i]] - step) < Math.abs(best - step) ? line.x[at[i]] : best, Infinity);
  const x = inside.left + (closest - low) / (high - low) * (view.width - inside.left - inside.right);
  let cursor = svg.querySelector(".cursor");
  if (!cursor) {
    cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
  }
  cursor.setAttribute("d", `M${x} ${inside.top}V${view.height - inside.bottom}`);
  const rows = lines.map((line, i) => {
    const row = make("div");
    const where = line.x[at[i]] === closest ? "" : ` (step ${line.x[at[i]]})`;
    row.append(make("span", `swatch c${line.colour}`), make("span", "", `${line.label}: ${number(line.y[at[i]])}${where}`));
    return row;
  });
  showTip(event, [make("strong", "", `step ${closest.toLocaleString("en")}`), ...rows]);
}
function clear(svg) {
  svg.querySelector(".cursor")?.remove();
  hideTip();
}

function applyChoices() {
  for (const node of document.querySelectorAll("[data-run]")) node.classList.toggle("off", hidden.has(Number(node.dataset.run)));
  for (const node of document.querySelectorAll("[data-toggle]")) node.setAttribute("aria-pressed", !hidden.has(Number(node.dataset.toggle)));
  for (const plot of document.querySelectorAll(".plot")) {
    const twin = plot.querySelector(".log-view");
    if (!twin) continue;
    twin.hidden = !logs.has(plot.id);
    plot.querySelector(".view").hidden = logs.has(plot.id);
    plot.querySelector("button.log").setAttribute("aria-pressed", logs.has(plot.id));
  }
}
const flip = (set, value) => { if (!set.delete(value)) set.add(value); applyChoices(); };

const chartOf = (event) => event.target.closest?.("svg.chart[data-axes]");
let shown = null;
document.addEventListener("pointermove", (event) => {
  const svg = chartOf(event);
  if (shown && shown !== svg) { clear(shown); shown = null; }
  if (svg) { shown = svg; point(svg, event); }
});
document.addEventListener("pointerdown", (event) => { const svg = chartOf(event); if (svg) { shown = svg; point(svg, event); } });
document.addEventListener("click", (event) => {
  const toggle = event.target.closest("[data-toggle]"), log = event.target.closest("button.log"), zoom = event.target.closest("[data-zoom]");
  if (toggle) flip(hidden, Number(toggle.dataset.toggle));
  if (log) flip(logs, log.closest(".plot").id);
  if (zoom) zooms.get(zoom.closest(".tools").nextElementSibling)(zoom.dataset.zoom);
});

// --- graphs ---------------------------------------------------------------------------------------------------------
const zooms = new Map();

/** Call back with (factor, x, y) for Ctrl and wheel, and for two fingers; with (dx, dy) for dragging by mouse. */
function gestures(node, zoom, drag) {
  const fingers = new Map();
  node.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), event.clientX, event.clientY);
  }, { passive: false });
  node.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    if (event.pointerType === "mouse") node.setPointerCapture(event.pointerId);
  });
  node.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    fingers.set(event.pointerId, event);
    if (fingers.size === 2) {
      const other = [...fingers.values()].find((f) => f.pointerId !== event.pointerId);
      const gap = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY) || 1;
      zoom(gap(event) / gap(before), (event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
    } else if (event.pointerType === "mouse" || drag.touch) drag.by(event.clientX - before.clientX, event.clientY - before.clientY);
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) node.addEventListener(name, (event) => fingers.delete(event.pointerId));
}

function graph(pane) {
  const svg = pane.querySelector("svg"), view = svg.viewBox.baseVal;
  const fit = () => Math.min(pane.clientWidth / view.width, pane.clientHeight / view.height, 1.5);
  let scale = Math.max(fit(), Math.min(1, pane.clientWidth / view.width), 0.55);
  const size = () => { svg.setAttribute("width", view.width * scale); svg.setAttribute("height", view.height * scale); };
  const zoom = (factor, x, y) => {
    const box = svg.getBoundingClientRect(), now = Math.max(fit() / 2, Math.min(6, scale * factor)), grown = now / scale;
    scale = now;
    size();
    pane.scrollLeft += (x - box.left) * (grown - 1);
    pane.scrollTop += (y - box.top) * (grown - 1);
  };
  size();
  const first = (svg.querySelector("g.node, g.box") || svg).getBoundingClientRect(), box = pane.getBoundingClientRect();
  pane.scrollLeft = first.left + first.width / 2 - box.left - pane.clientWidth / 2;
  if (first.bottom - box.top > pane.clientHeight) pane.scrollTop = first.top - box.top - 60;
  gestures(pane, zoom, { by: (dx, dy) => { pane.scrollLeft -= dx; pane.scrollTop -= dy; } });
  zooms.set(pane, (how) => {
    const box = pane.getBoundingClientRect();
    if (how === "fit") { scale = fit(); size(); } else zoom(how === "in" ? 1.4 : 1 / 1.4, box.left + box.width / 2, box.top + box.height / 2);
  });
}
document.querySelectorAll("div.graph").forEach(graph);

// --- timelines ------------------------------------------------------------------------------------------------------
const LANE = 30, HEAD = 22, NAME = 16;

function timeline(pane) {
  const found = data.timelines[pane.dataset.timeline], canvas = pane.querySelector("canvas"), pen = canvas.getContext("2d");
  const end = Math.max(1, ...found.lanes.flatMap((lane) => lane.events.map((e) => e[0] + e[1])));
  const height = HEAD + found.lanes.length * (LANE + NAME);
  // the shortest step first: between recorded steps others ran, which leave gaps, and in longer ones something else had the cores
  const steps = found.lanes[0].events.filter((e) => found.names[e[2]].startsWith("step "));
  const shortest = steps.reduce((best, e) => (e[1] < best[1] ? e : best), steps[0]);
  let [from, to] = shortest ? [shortest[0], shortest[0] + shortest[1]] : [0, end];
  const colour = (role) => `c${(role + 7) % 8}`;
  pane.previousElementSibling.replaceChildren(...found.roles.map((role, i) => {
    const entry = make("span");
    entry.append(make("span", `swatch ${colour(i)}`), role);
    return entry;
  }));
  function draw() {
    const width = pane.clientWidth, ratio = devicePixelRatio || 1, style = getComputedStyle(pane);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `11px ${style.fontFamily}`;
    const ink = style.getPropertyValue("--soft"), paper = style.getPropertyValue("--paper");
    const fills = found.roles.map((_, i) => style.getPropertyValue(`--${colour(i)}`));
    const place = (time) => (time - from) / (to - from) * width;
    const unit = to - from > 2000 ? 1000 : 1, rough = (to - from) / unit / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((m) => m * power >= rough) * power * unit;
    pen.fillStyle = pen.strokeStyle = ink;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      pen.fillText(`${Number((t / unit).toPrecision(6))} ${unit === 1 ? "µs" : "ms"}`, place(t) + 3, 13);
      pen.fillRect(place(t), 2, 1, 14);
    }
    found.lanes.forEach((lane, row) => {
      const top = HEAD + row * (LANE + NAME);
      pen.fillStyle = ink;
      pen.fillText(lane.name, 4, top + 12);
      for (const [start, length, name, role] of lane.events) {
        const x = place(start), w = Math.max(0.6, place(start + length) - x);
        if (x + w < 0 || x > width) continue;
        pen.fillStyle = fills[role];
        pen.fillRect(x, top + NAME, w > 3 ? w - 0.6 : w, LANE - 4);
        if (w > 34) {
          pen.save();
          pen.beginPath();
          pen.rect(Math.max(0, x), top + NAME, Math.min(w - 4, width), LANE);
          pen.clip();
          pen.fillStyle = paper;
          pen.fillText(found.names[name].split("\n")[0], Math.max(0, x) + 4, top + NAME + 17);
          pen.restore();
        }
      }
    });
  }
  const clamp = (a, b) => { const size = Math.min(end, b - a); from = Math.max(0, Math.min(a, end - size)); to = from + size; draw(); };
  gestures(canvas, (factor, x) => {
    const box = canvas.getBoundingClientRect(), part = (x - box.left) / box.width, at = from + part * (to - from);
    const size = Math.max(end / 5000, (to - from) / factor);
    clamp(at - part * size, at - part * size + size);
  }, { touch: true, by: (dx) => { const by = dx / pane.clientWidth * (to - from); clamp(from - by, to - by); } });
  canvas.addEventListener("dblclick", () => clamp(0, end));
  const tell = (event) => {
    const box = canvas.getBoundingClientRect(), time = from + (event.clientX - box.left) / box.width * (to - from);
    const row = Math.floor((event.clientY - box.top - HEAD) / (LANE + NAME)), slack = (to - from) / box.width * 2;
    const hit = found.lanes[row]?.events.find((e) => e[0] - slack <= time && time <= e[0] + e[1] + slack);
    if (!hit) return hideTip();
    showTip(event, [make("strong", "", found.names[hit[2]].split("\n")[0]), make("div", "", `${number(hit[1])} µs, ${found.roles[hit[3]]}`),
      make("span", "", found.names[hit[2]].split("\n").slice(1).filter(Boolean).join("\n"))]);
  };
  canvas.addEventListener("pointermove", tell);
  canvas.addEventListener("pointerdown", tell);
  canvas.addEventListener("pointerleave", hideTip);
  new ResizeObserver(draw).observe(pane);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
document.querySelectorAll(".timeline").forEach((pane) => { if (data.timelines[pane.dataset.timeline]) timeline(pane); });

// --- news -----------------------------------------------------------------------------------------------------------
if (data.live) {
  const source = new EventSource("events"), badge = document.getElementById("live");
  source.addEventListener("news", (event) => {
    const news = JSON.parse(event.data);
    for (const id of ["summary", "charts", "gradients"]) document.getElementById(id).innerHTML = news[id];
    data.charts = news.data;
    applyChoices();
  });
  source.addEventListener("look", (event) => {
    const look = JSON.parse(event.data);
    document.getElementById("memory").innerHTML = look.memory;
    document.getElementById("timelines").hidden = !look.timeline;
    if (!look.timeline) return;
    data.timelines[0] = look.timeline;
    const old = document.querySelector(".timeline"), pane = old.cloneNode(true); // without what listens to the old one
    old.replaceWith(pane);
    timeline(pane);
  });
  source.addEventListener("end", () => {
    source.close();
    badge.textContent = "ended";
    badge.className = "state done";
  });
  source.onerror = () => { badge.textContent = "no connection"; badge.className = "state lost"; };
  source.onopen = () => { badge.textContent = "live"; badge.className = "state running"; };
}
