"use strict";
// Draws the charts from the data that the page carries, keeps them in step with htmx's updates, keeps the address in step
// with the table of arms, and asks before a form.

(() => {
  const charts = new Map(); // name -> {plot, shape}
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (v) => (v == null ? "–" : v >= 100 ? v.toFixed(0) : v >= 1 ? v.toFixed(2) : v.toPrecision(2));
  const percent = (v) => (v == null ? "–" : `${(100 * v).toFixed(1)} %`);
  const count = (v) => (v == null ? "–" : v.toLocaleString("en"));
  const interval = (plot, v, first, at) =>
    v == null ? "–" : `${number(v)} [${number(plot.data[first + 1][at])}, ${number(plot.data[first + 2][at])}]`;
  const OPTIONAL = ["variants", "experiment"]; // charts that are shown only if there is something in them
  const CLOCK = { hourCycle: "h23" }; // of every time on the page
  const LINES = ["greedy", "drawn", "third", "fourth", "fifth", "soft"];

  function axis(extra = {}) {
    return {
      stroke: colour("soft"), font: "12px system-ui, sans-serif", grid: { stroke: colour("rule"), width: 1 },
      ticks: { stroke: colour("rule"), width: 1, size: 4 }, ...extra,
    };
  }

  // Where points are too close together to be shown: those with nothing beside them, which no line shows either.
  const alone = (plot, i, shown) =>
    shown ? null : plot.data[i].flatMap((v, at, all) => (v != null && all[at - 1] == null && all[at + 1] == null ? [at] : []));

  function line(label, name, value, extra = {}) {
    return { label, stroke: colour(name), width: 2, value: (_, v) => value(v), points: { size: 5, filter: alone }, ...extra };
  }

  // Ticks by the reader's own clock: seconds, minutes or days, as far apart as they are.
  function clock(_, ticks, __, ___, step) {
    const fine = { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
    const day = step < 90 * 86400 ? { day: "numeric", month: "short" } : { month: "short", year: "numeric" };
    return ticks.map((tick) => {
      const when = new Date(1000 * tick);
      const whole = step >= 86400 || (step >= 600 && when.getHours() + when.getMinutes() === 0);
      return whole ? when.toLocaleDateString([], day) : when.toLocaleTimeString([], { ...fine, ...CLOCK });
    });
  }

  const minutes = [1, 2, 5, 10, 15, 30];
  const steps = [
    ...minutes, ...minutes.map((m) => 60 * m), ...[1, 2, 3, 6, 12].map((h) => 3600 * h),
    ...[1, 2, 7, 14, 30, 90, 365].map((d) => 86400 * d),
  ];
  const timeAxis = () => axis({ values: clock, space: 76, size: 32, incrs: steps });
  const moment = { value: (_, v) => (v == null ? "–" : new Date(1000 * v).toLocaleString([], CLOCK)), label: "time" };
  const fromZero = (_, low, high) => [0, high > 0 ? high * 1.15 : 1];
  // A minute around a single point, for which uPlot would take years.
  const timeRange = ({ data: [times] }, low, high) => (times.length > 1 ? [low, high] : [times[0] - 30, times[0] + 30]);
  // As wide as the longest number beside it, lest 125,000 lose its first digit.
  const asWide = (_, ticks) => Math.max(46, 14 + 7 * Math.max(...(ticks ?? [""]).map((tick) => `${tick ?? ""}`.length)));
  const overTime = (series, { scales, ...extra } = {}) => ({
    series: [moment, ...series], scales: { x: { range: timeRange }, y: { range: fromZero }, ...scales },
    axes: [timeAxis(), axis({ size: asWide })], ...extra,
  });

  // The stretches of one model, from the model that served at each point.
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
      const names = one.epoch < 0 ? ["several"] : [`model ${one.epoch}`, `${one.epoch}`];
      const label = names.find((text) => ctx.measureText(text).width <= room);
      if (left < free || !label) return;
      ctx.fillStyle = colour("soft");
      ctx.fillText(label, left + 5 * devicePixelRatio, bbox.top + 4 * devicePixelRatio);
      free = left + ctx.measureText(label).width + 12 * devicePixelRatio;
    });
    ctx.restore();
  }

  const powers = (_, __, low, high) => [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].filter((v) => v <= high);
  const short = (v) => (v >= 1e6 ? `${v / 1e6}M` : v >= 1e3 ? `${v / 1e3}k` : `${v}`);

  // data: the chart's part of the page's data as columns; options: how it looks.
  const kinds = {
    reward: {
      data: (d) => d.slice(0, 2),
      options: () => overTime([line("reward per visit", "greedy", number)], {
        hooks: { drawClear: [(plot) => bands(plot, current().reward[2])] },
      }),
    },
    variants: {
      data: (d) => d.lines,
      options: (d) => overTime(d.labels.map((label, i) => line(label, LINES[i], number))),
    },
    experiment: {
      data: (d) => d.lines,
      options: (d) => overTime(
        d.labels.flatMap((label, i) => [
          line(label, LINES[i % LINES.length], number, { value: (plot, v, _, at) => interval(plot, v, 3 * i + 1, at) }),
          ...["from", "to"].map((end) => line(end, LINES[i % LINES.length], number, { width: 0, points: { show: false }, class: "edge" })),
        ]),
        {
          bands: d.labels.map((_, i) => ({ series: [3 * i + 3, 3 * i + 2], fill: `${colour(LINES[i % LINES.length])}26` })),
          scales: { y: { range: (_, low, high) => [Math.max(0, low - 0.1 * (high - low)), high + 0.1 * (high - low)] } },
        },
      ),
    },
    slots: {
      data: (d) => d,
      options: () => overTime([line("likely", "greedy", number), line("unlikely", "drawn", number)]),
    },
    unlikely: {
      data: (d) => d,
      options: () => ({
        ...overTime([line("unlikely", "drawn", percent, { fill: colour("drawn-soft") })]),
        axes: [timeAxis(), axis({ size: 46, values: (_, vs) => vs.map((v) => `${+(100 * v).toFixed(1)} %`) })],
      }),
    },
    traffic: {
      data: (d) => d,
      options: () => overTime([line("visits", "greedy", number), line("rewards", "third", number)]),
    },
    latency: {
      data: (d) => d,
      options: () => overTime([line("median", "greedy", number), line("90 %", "third", number), line("99 %", "drawn", number)]),
    },
    errors: {
      data: (d) => d,
      options: () => overTime([line("4xx", "third", number), line("5xx", "bad", number)]),
    },
    propensity: {
      data: (d) => [d.edges.slice(1).map((_, i) => i), ...d.counts],
      options: ({ edges }) => {
        const ticks = edges.map((edge, i) => ({ edge, i })).slice(1).filter((t) => (t.i - 1) % 4 === 0);
        const bars = (align) => uPlot.paths.bars({ size: [0.42, 60], align });
        const one = (label, name, align) => line(label, name, count, {
          width: 0, fill: colour(name), paths: bars(align), points: { show: false },
        });
        return {
          series: [
            { value: (_, i) => (i == null ? "–" : `${edges[i].toPrecision(2)} to ${edges[i + 1].toPrecision(2)}`), label: "chance" },
            one("likely", "greedy", -1), one("unlikely", "drawn", 1),
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
      const columns = data[name] ? kind.data(data[name]) : [[]];
      const ready = columns[0].length > 0;
      host.classList.toggle("empty", !ready);
      if (OPTIONAL.includes(name)) document.getElementById(`figure-${name}`).hidden = !data[name];
      if (!ready) {
        if (known) known.plot.destroy();
        charts.delete(name);
        continue;
      }
      const shape = OPTIONAL.includes(name) ? data[name].labels.join() : "";
      if (known && known.shape === shape && !rebuild) {
        known.plot.setData(columns);
        continue;
      }
      if (known) known.plot.destroy();
      const size = { width: width(host), height: 240, padding: [8, 26, 0, 0] };
      charts.set(name, { plot: new uPlot({ ...size, ...kind.options(data[name]) }, columns, host), shape });
    }
  }

  // Times in the words of the reader's own clock.
  function localise(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const when = new Date(1000 * Number(element.getAttribute("datetime")));
      const today = when.toDateString() === new Date().toDateString();
      element.textContent = today ? when.toLocaleTimeString([], CLOCK) : when.toLocaleString([], CLOCK);
      element.title = when.toISOString();
    }
  }

  // A field for date and time knows no time zone: it shows the reader's, and the address has seconds since 1970.
  function fillTimes(form) {
    for (const input of form.querySelectorAll("input[data-seconds]")) {
      const when = new Date(1000 * Number(input.dataset.seconds));
      input.value = new Date(when - 60000 * when.getTimezoneOffset()).toISOString().slice(0, 16);
    }
  }

  function showTimes(form) {
    const wanted = new URLSearchParams(new FormData(form));
    for (const name of ["from", "to"]) {
      const typed = wanted.get(name);
      if (typed) wanted.set(name, Math.round(new Date(typed) / 1000));
      else wanted.delete(name);
    }
    location.assign(`/?${wanted}`);
  }

  function pulse(text) {
    const element = document.getElementById("pulse");
    element.textContent = text;
    element.classList.toggle("away", text !== "live");
  }

  const body = document.body;
  const times = document.querySelector("form[data-times]");
  draw(true);
  localise(document);
  fillTimes(times);
  if (new URLSearchParams(location.search).has("done")) {
    const rest = new URLSearchParams(location.search);
    rest.delete("done");
    history.replaceState(null, "", rest.size ? `/?${rest}` : "/");
  }

  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const known = charts.get(target.id.replace("chart-", ""));
      if (known && known.plot.width !== width(target)) known.plot.setSize({ width: width(target), height: 240 });
    }
  });
  document.querySelectorAll(".chart").forEach((host) => resized.observe(host));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  addEventListener("popstate", () => location.reload());

  let answered = ""; // the path of the request whose answer is being swapped in
  body.addEventListener("htmx:configRequest", (event) => {
    const { detail } = event;
    if (detail.path === "/dashboard/updates") detail.path += location.search; // what the page shows now
    if (detail.elt.id === "search-form") {
      const wanted = new URLSearchParams(location.search);
      for (const name of ["page", "arm", "search"]) wanted.delete(name);
      const text = document.getElementById("search").value.trim();
      if (text) wanted.set("search", text);
      for (const name of [...detail.formData.keys()]) detail.formData.delete(name);
      detail.path = `/dashboard/arms?${wanted}`;
    }
  });
  body.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.detail.pathInfo.requestPath.startsWith("/dashboard/updates")) event.preventDefault();
  });
  body.addEventListener("htmx:beforeSwap", (event) => {
    answered = event.detail.pathInfo.requestPath;
  });
  body.addEventListener("htmx:oobBeforeSwap", (event) => {
    // What is being read or reached by keyboard is not taken away, unless that is what was asked for.
    const { target } = event.detail;
    const busy = target.querySelector("details[open], :focus-visible") || (target.id === "arms" && target.matches(":hover"));
    const asked = answered.startsWith("/dashboard/arms") || answered.startsWith("/dashboard/categories");
    if (busy && !asked) event.detail.shouldSwap = false;
  });
  body.addEventListener("htmx:oobAfterSwap", (event) => {
    const element = document.getElementById(event.detail.target.id);
    if (!element) return;
    if (element.id === "data") draw(false);
    else localise(element);
  });
  body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "arm-why") return;
    localise(event.detail.target);
    const heading = document.getElementById("h-why");
    if (heading) heading.focus();
  });
  body.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful) return;
    pulse("live");
    const [path, search] = event.detail.pathInfo.finalRequestPath.split("?");
    if (!["/dashboard/arms", "/dashboard/categories"].includes(path)) return;
    const typed = event.detail.elt.id === "search-form";
    history[typed ? "replaceState" : "pushState"](null, "", search ? `/?${search}` : "/");
  });
  body.addEventListener("htmx:sendError", () => pulse("no connection"));
  body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) location.reload(); // the session is over
    else pulse(`error ${event.detail.xhr.status}`);
  });
  body.addEventListener("submit", (event) => {
    if (event.target === times) {
      event.preventDefault();
      showTimes(times);
    }
    const ask = event.target.dataset.confirm;
    if (ask && !confirm(ask)) event.preventDefault();
  });
})();
