"use strict";
// Draws the charts from the data that the page carries, keeps them in step with htmx's updates, and asks before a form.

(() => {
  const charts = new Map(); // name -> {plot, host}
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (v) => (v == null ? "–" : v >= 100 ? v.toFixed(0) : v >= 1 ? v.toFixed(1) : v.toPrecision(2));
  const percent = (v) => (v == null ? "–" : `${(100 * v).toFixed(1)} %`);
  const count = (v) => (v == null ? "–" : v.toLocaleString("en"));

  function axis(extra = {}) {
    return {
      stroke: colour("soft"), font: "12px system-ui, sans-serif", grid: { stroke: colour("rule"), width: 1 },
      ticks: { stroke: colour("rule"), width: 1, size: 4 }, ...extra,
    };
  }

  function line(label, name, value, extra = {}) {
    return { label, stroke: colour(name), width: 2, value: (_, v) => value(v), points: { size: 5 }, ...extra };
  }

  // Ticks by the reader's own clock: seconds, minutes or days, as far apart as they are.
  function clock(_, ticks, __, ___, step) {
    const fine = { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
    const day = { day: "numeric", month: "short" };
    return ticks.map((tick) => {
      const when = new Date(1000 * tick);
      const whole = step >= 86400 || (step >= 600 && when.getHours() + when.getMinutes() === 0);
      return whole ? when.toLocaleDateString([], day) : when.toLocaleTimeString([], { ...fine, hourCycle: "h23" });
    });
  }

  const minutes = [1, 2, 5, 10, 15, 30];
  const steps = [
    ...minutes, ...minutes.map((m) => 60 * m), ...[1, 2, 3, 6, 12].map((h) => 3600 * h),
    ...[1, 2, 7, 14, 30, 90, 365].map((d) => 86400 * d),
  ];
  const timeAxis = () => axis({ values: clock, space: 76, size: 32, incrs: steps });
  const moment = { value: (_, v) => (v == null ? "–" : new Date(1000 * v).toLocaleString()), label: "time" };
  const fromZero = (_, low, high) => [0, high > 0 ? high * 1.15 : 1];

  // The stretches of one epoch, from the epoch that served at each point.
  function stretches(times, epochs) {
    const found = [];
    times.forEach((time, i) => {
      const last = found[found.length - 1];
      if (!last || last.epoch !== epochs[i]) found.push({ epoch: epochs[i], begin: time });
    });
    return found;
  }

  function bands(plot, epochs) {
    const { ctx, bbox } = plot;
    const all = stretches(plot.data[0], epochs);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    let free = -Infinity; // where the next label may begin
    all.forEach((one, i) => {
      const left = i ? plot.valToPos(one.begin, "x", true) : bbox.left;
      const right = i + 1 < all.length ? plot.valToPos(all[i + 1].begin, "x", true) : bbox.left + bbox.width;
      ctx.fillStyle = colour(i % 2 ? "band" : "card");
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      const room = right - left - 8 * devicePixelRatio;
      const label = [`epoch ${one.epoch}`, `${one.epoch}`].find((text) => ctx.measureText(text).width <= room);
      if (left < free || !label) return;
      ctx.fillStyle = colour("soft");
      ctx.fillText(label, left + 5 * devicePixelRatio, bbox.top + 4 * devicePixelRatio);
      free = left + ctx.measureText(label).width + 12 * devicePixelRatio;
    });
    ctx.restore();
  }

  const powers = (_, __, low, high) => [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].filter((v) => v <= high);
  const short = (v) => (v >= 1e6 ? `${v / 1e6}M` : v >= 1e3 ? `${v / 1e3}k` : `${v}`);

  const kinds = {
    reward: {
      data: (d) => d.reward.slice(0, 3),
      options: () => ({
        series: [moment, line("greedy", "greedy", number), line("explored", "drawn", number)],
        scales: { y: { range: fromZero } }, axes: [timeAxis(), axis({ size: 46 })],
        hooks: { drawClear: [(plot) => bands(plot, current().reward[3])] },
      }),
    },
    explored: {
      data: (d) => d.explored,
      options: () => ({
        series: [moment, line("explored", "drawn", percent, { fill: colour("drawn-soft") })],
        scales: { y: { range: [0, 1] } }, axes: [timeAxis(), axis({ size: 46, values: (_, vs) => vs.map((v) => `${100 * v} %`) })],
      }),
    },
    latency: {
      data: (d) => d.latency,
      options: () => ({
        series: [moment, line("median", "greedy", number), line("90 %", "third", number), line("99 %", "drawn", number)],
        scales: { y: { range: fromZero } }, axes: [timeAxis(), axis({ size: 46 })],
      }),
    },
    propensity: {
      data: (d) => [d.propensity.edges.slice(1).map((_, i) => i), ...d.propensity.counts],
      options: () => {
        const edges = current().propensity.edges;
        const ticks = edges.map((edge, i) => ({ edge, i })).slice(1).filter((t) => (t.i - 1) % 4 === 0);
        const bars = (align) => uPlot.paths.bars({ size: [0.42, 60], align });
        const one = (label, name, align) => line(label, name, count, {
          width: 0, fill: colour(name), paths: bars(align), points: { show: false },
        });
        return {
          series: [
            { value: (_, i) => (i == null ? "–" : `${edges[i].toPrecision(2)} to ${edges[i + 1].toPrecision(2)}`), label: "chance" },
            one("greedy", "greedy", -1), one("explored", "drawn", 1),
          ],
          scales: { x: { time: false, range: [-0.7, edges.length - 1.3] }, y: { distr: 4, range: (_, low, high) => [0, Math.max(10, 2 * high)] } },
          axes: [
            axis({
              size: 32,
              splits: () => ticks.map((t) => t.i - 0.5),
              values: () => ticks.map((t) => (t.edge > 0.009 ? `${+t.edge.toPrecision(2)}` : `1e${Math.round(Math.log10(t.edge))}`)),
            }),
            axis({ size: 46, splits: powers, values: (_, vs) => vs.map(short) }),
          ],
        };
      },
    },
  };

  const current = () => JSON.parse(document.getElementById("data").dataset.charts);

  function width(host) {
    return Math.max(100, Math.floor(host.clientWidth));
  }

  function draw(rebuild) {
    const data = current();
    for (const [name, kind] of Object.entries(kinds)) {
      const host = document.getElementById(`chart-${name}`);
      const known = charts.get(name);
      const ready = Boolean(data[name]) && kind.data(data)[0].length > 0;
      host.classList.toggle("empty", !ready);
      if (!ready) continue;
      if (known && !rebuild) {
        known.setData(kind.data(data));
        continue;
      }
      if (known) known.destroy();
      charts.set(name, new uPlot({ width: width(host), height: 240, padding: [8, 26, 0, 0], ...kind.options() }, kind.data(data), host));
    }
  }

  // Times in the words of the reader's own clock.
  function localise(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const when = new Date(1000 * Number(element.getAttribute("datetime")));
      const today = when.toDateString() === new Date().toDateString();
      element.textContent = today ? when.toLocaleTimeString() : when.toLocaleString();
      element.title = when.toISOString();
    }
  }

  function pulse(text) {
    const element = document.getElementById("pulse");
    element.textContent = text;
    element.classList.toggle("away", text !== "live");
  }

  const body = document.body;
  draw(true);
  localise(document);

  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = charts.get(target.id.replace("chart-", ""));
      if (plot && plot.width !== width(target)) plot.setSize({ width: width(target), height: 240 });
    }
  });
  document.querySelectorAll(".chart").forEach((host) => resized.observe(host));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));

  body.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.detail.pathInfo.requestPath === "/dashboard/updates") event.preventDefault();
  });
  body.addEventListener("htmx:oobBeforeSwap", (event) => {
    // What is being read or reached by keyboard is not taken away.
    if (event.detail.target.querySelector("details[open], :focus-visible")) event.detail.shouldSwap = false;
  });
  body.addEventListener("htmx:oobAfterSwap", (event) => {
    const element = document.getElementById(event.detail.target.id);
    if (!element) return;
    if (element.id === "data") draw(false);
    else localise(element);
  });
  body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) pulse("live");
  });
  body.addEventListener("htmx:sendError", () => pulse("no connection"));
  body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) location.reload(); // the session is over
    else pulse(`error ${event.detail.xhr.status}`);
  });
  body.addEventListener("submit", (event) => {
    const ask = event.target.dataset.confirm;
    if (ask && !confirm(ask)) event.preventDefault();
  });
})();
