"use strict";
// Draws the report's charts from the JSON in the page, in the page's own colours.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const form = document.querySelector(".switches");
  const config = { responsive: true, displaylogo: false, scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  let printing = false;

  const chosen = (name) => form.querySelector(`input[name=${name}]:checked`).value;
  const evaluated = data.curves.some((curve) => curve.iteration.length);
  const MEASURES = ["payload", "message", "wire"];

  const quality = data.quality, higher = quality.better === "higher";
  const percent = quality.name === "accuracy";
  const good = (value, goal) => value !== null && goal !== null && (higher ? value >= goal : value <= goal);
  const withUnit = (value) => `${value}${quality.unit ? ` ${quality.unit}` : ""}`;
  const goalInWords = () => (percent ? "" : `${quality.name} `) + withUnit(target() ?? "\u2014");
  // Plotly interprets some HTML in titles and hovers.
  const escaped = (words) => words.replace(/&/g, "&amp;").replace(/</g, "&lt;");

  // A link may ask for a view: report.html#ingress=payload&axis=linear&accuracy=95; or &goal=4.3
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [name, key] of [["measure", "ingress"], ["scale", "axis"]]) {
    const button = form.querySelector(`input[name=${name}][value="${CSS.escape(asked.get(key) ?? "")}"]`);
    if (button) button.checked = true;
  }
  for (const key of percent ? ["accuracy", "goal"] : ["goal"]) {
    if (Number.isFinite(parseFloat(asked.get(key)))) form.elements.goal.value = asked.get(key);
  }

  // Where a curve first reaches a goal: the mean over those of its runs that do.
  function reach(curve, goal) {
    const points = [];
    for (const run of curve.runs) {
      const i = run.value.findIndex((value) => good(value, goal));
      if (i >= 0) points.push(Object.fromEntries(
        ["iteration", "value", ...MEASURES].map((name) => [name, run[name][i]])));
    }
    const mean = (name) => points.reduce((sum, point) => sum + point[name], 0) / points.length;
    const best = curve.runs.map((run) => (higher ? Math.max : Math.min)(...run.value.filter((v) => v !== null)))
      .filter(Number.isFinite);
    return { reached: points.length, best: best.reduce((a, b) => a + b, 0) / best.length,
      ...Object.fromEntries(["iteration", "value", ...MEASURES].map((name) => [name, mean(name)])) };
  }

  // Four digits, or two decimals of an accuracy, as the tables have them.
  function text(value) {
    if (!Number.isFinite(value)) return "\u2014";
    return percent ? value.toFixed(2) : String(Number(value.toPrecision(4)));
  }

  // Three digits, as the tables have them.
  function three(value) {
    const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    // toLocaleString alone rounds the decimal text, 1.275 up; the tables round the number, which is less.
    return Number(value.toFixed(digits))
      .toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function bytes(count) {
    if (!Number.isFinite(count)) return "\u2014";
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let unit = 0;
    while (count >= 999.5 && unit < units.length - 1) { count /= 1000; unit += 1; }
    return `${unit ? three(count) : Math.round(count)} ${units[unit]}`;
  }

  function ratio(value) {
    if (!Number.isFinite(value) || value <= 0) return "\u2014";
    if (value === 1) return "1";
    if (Math.max(value, 1 / value) < 1.005) return value.toFixed(3);
    return value < 1 ? `1/${three(1 / value)}` : three(value);
  }

  function target() {
    const value = form.elements.goal.valueAsNumber;
    return Number.isFinite(value) ? value : data.goal;
  }

  function reachTable() {
    const measure = chosen("measure");
    const rows = data.curves.map((curve) => reach(curve, target()));
    const base = rows[data.baseline];
    const headings = document.querySelectorAll("#reached thead th");
    headings[0].textContent = `to reach ${goalInWords()}`;
    headings[6].textContent = headings[6].textContent.replace(/^\w+/, measure);
    document.querySelectorAll("#reached tbody tr").forEach((line, i) => {
      const row = rows[i];
      const cells = [`${row.reached} of ${data.curves[i].runs.length}`, ...MEASURES.map((m) => bytes(row[m])),
        row.reached ? Math.round(row.iteration).toLocaleString("en") : "\u2014",
        ratio(row[measure] / base[measure]),
        text(row.best)];
      line.querySelectorAll("td").forEach((cell, k) => { cell.textContent = cells[k]; });
    });
  }

  function layout(x, y) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name, onPaper) => (printing ? onPaper : style.getPropertyValue(name).trim());
    const ink = colour("--ink", "#000000");
    const line = colour("--line", "#bbbbbb");
    const soft = colour("--soft", "#444444");
    const axis = { gridcolor: line, linecolor: line, zeroline: false, automargin: true,
      tickfont: { color: soft }, ticks: "outside", tickcolor: line, ticklen: 4,
      title: { standoff: 10 } };
    const merge = (more) => ({ ...axis, ...more, title: { ...axis.title, text: more.title } });
    const small = narrow.matches && !printing;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: small ? 12 : 13, color: ink },
      margin: { l: 8, r: 40, t: 36, b: 8 }, hovermode: "closest",
      hoverlabel: { align: "left" },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" },
      showlegend: true, dragmode: small ? false : "zoom",
      modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      xaxis: merge(x), yaxis: merge(y),
    };
  }

  function style(i) {
    const colours = data.colours[dark.matches && !printing ? "dark" : "light"];
    const colour = colours[i % colours.length];
    return { line: { color: colour, width: 2, dash: data.curves[i].dash },
      marker: { color: colour, symbol: data.curves[i].symbol, size: 7, maxdisplayed: 12 } };
  }

  // As in the figures, a logarithmic axis if a linear one would hide how curves end.
  function upright(traces) {
    const known = traces.filter((trace) => trace.customdata)
      .flatMap((trace) => trace.y.filter((y, k) => y !== null && trace.x[k] !== null));
    const least = known.reduce((a, b) => Math.min(a, b), Infinity);
    const span = known.reduce((a, b) => Math.max(a, b), -Infinity) / least;
    const log = !percent && least > 0 && span >= 20;
    return { title: escaped(`test ${quality.axis}`), rangemode: "normal",
      ...(log ? { type: "log", dtick: span >= 1000 ? 1 : "D2" } : {}) };
  }

  function curves(of, mark, hover) {
    const bands = [], lines = [], stars = [];
    data.curves.forEach((curve, i) => {
      const look = style(i);
      const x = of(curve);
      // A value that is not drawn would widen the axis; accuracies all begin at about the same.
      const y = percent ? curve.value : curve.value.map((value, k) => (x[k] === null ? null : value));
      if (curve.low) {
        // There along the lower edge, and back along the upper one.
        const known = x.map((v, k) => k).filter((k) => x[k] !== null);
        const back = [...known].reverse();
        bands.push({ type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
          x: [...known.map((k) => x[k]), ...back.map((k) => x[k])],
          y: [...known.map((k) => curve.low[k]), ...back.map((k) => curve.high[k])],
          line: { width: 0 }, fillcolor: look.line.color, opacity: 0.2, showlegend: false,
          legendgroup: `curve ${i}` });
      }
      lines.push({ type: "scatter", mode: "lines+markers", name: curve.name, x, y,
        legendgroup: `curve ${i}`,
        customdata: curve.iteration.map((n, k) => [n, curve.time[k]]),
        hovertemplate: `<b>%{fullData.name}</b><br>%{y${percent ? ":.2f" : ":.4~r"}} ${escaped(quality.unit || quality.name)}<br>${hover}<extra></extra>`, ...look });
      const point = reach(curve, target());
      if (!point.reached) return;
      const all = point.reached === curve.runs.length;
      stars.push({ type: "scatter", mode: "markers", x: [mark(point)], y: [point.value],
        name: curve.name, legendgroup: `curve ${i}`, showlegend: false,
        marker: { symbol: all ? "star" : "star-open", size: 15, color: look.line.color,
          line: { width: 1, color: getComputedStyle(document.documentElement).getPropertyValue("--ink") } },
        hovertemplate: `<b>%{fullData.name}</b><br>reaches ${escaped(goalInWords())} with `
          + `${MEASURES.map((m) => `${bytes(point[m])} ${m}`).join(", ")}<extra></extra>` });
    });
    return [...bands, ...lines, ...stars];
  }

  // Below the curves: a row of ticks and bars for each run with faults, and how many workers are alive.
  function faults(chart, place, traces) {
    const rows = data.curves.map((curve, i) => i).filter((i) => data.curves[i].faults.length);
    if (!rows.length) return chart;
    const many = data.curves.some((curve) => curve.living);
    const strip = 0.04 + 0.035 * rows.length, room = strip + 0.03 + (many ? 0.2 : 0);
    chart.yaxis.domain = [room, 1];
    chart.xaxis.anchor = "y2";
    chart.yaxis2 = { domain: [0, strip], range: [rows.length - 0.4, -0.6], fixedrange: true,
      showgrid: false, zeroline: false, showticklabels: false };
    rows.forEach((i, row) => {
      const look = style(i);
      chart.shapes.push({ type: "line", xref: "paper", yref: "y2", x0: 0, x1: 1, y0: row, y1: row,
        line: { color: look.line.color, width: 1, dash: look.line.dash }, layer: "below" });
      for (const fault of data.curves[i].faults.filter((one) => one.until)) {
        traces.push({ type: "scatter", mode: "lines", yaxis: "y2", x: [place(fault.at), place(fault.until)],
          y: [row, row], line: { color: data.fault_kinds[fault.kind], width: 7 }, opacity: 0.5,
          hoverinfo: "skip", showlegend: false, legendgroup: `fault ${fault.kind}` });
      }
    });
    Object.keys(data.fault_kinds).forEach((kind) => {
      const found = rows.flatMap((i, row) => data.curves[i].faults
        .filter((one) => one.kind === kind).map((one) => [place(one.at), row, one.text]));
      traces.push({ type: "scatter", mode: "markers", yaxis: "y2", name: kind, legendgroup: `fault ${kind}`,
        x: found.map((one) => one[0]), y: found.map((one) => one[1]), text: found.map((one) => one[2]),
        hovertemplate: "%{text}<extra></extra>",
        marker: { symbol: "line-ns", size: 11, line: { color: data.fault_kinds[kind], width: 1.5 } } });
    });
    const kills = data.curves.flatMap((curve, i) => curve.faults.filter((one) => one.server)
      .map((one) => [i, place(one.at)])).filter(([, x]) => x !== null);
    for (const [i, x] of kills.length <= 4 ? kills : []) {
      chart.shapes.push({ type: "line", yref: "paper", x0: x, x1: x, y0: room, y1: 1, layer: "below",
        line: { color: style(i).line.color, width: 1, dash: "dot" } });
      chart.annotations.push({ x: chart.xaxis.type === "log" ? Math.log10(x) : x, yref: "paper", y: room,
        text: "server killed", textangle: -90, showarrow: false, xanchor: "right", yanchor: "bottom",
        font: { size: 11 } });
    }
    if (many) {
      chart.yaxis3 = { ...chart.yaxis, domain: [strip + 0.03, strip + 0.18], rangemode: "tozero", nticks: 3,
        title: { text: "workers<br>alive", standoff: 10 } };
      data.curves.forEach((curve, i) => {
        if (curve.living) traces.push({ type: "scatter", mode: "lines", yaxis: "y3", name: curve.name,
          x: curve.living.workers.map((_, k) => place(at(curve.living, k))), y: curve.living.workers,
          legendgroup: `curve ${i}`, showlegend: false, line: { ...style(i).line, shape: "hv" },
          hovertemplate: "<b>%{fullData.name}</b><br>%{y} workers alive<extra></extra>" });
      });
    }
    return chart;
  }

  function at(columns, k) {
    return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[k]]));
  }

  function goal(chart) {
    const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: target(), y1: target(),
      line: { color: "#888888", width: 1, dash: "dot" }, layer: "below" };
    const reached = data.curves.some((curve) => reach(curve, target()).reached);
    return { ...chart, shapes: reached ? [line] : [], annotations: [] };
  }

  function ingress() {
    const measure = chosen("measure");
    const log = chosen("scale") === "log";
    // A log axis has no place for the evaluation before any update; programs have no updates.
    const counted = (curve) => curve[measure].map(
      (n, k) => (log && (n <= 0 || (curve.iteration[k] === 0 && !data.rounds)) ? null : n));
    const all = data.curves.flatMap(counted).filter((n) => n > 0);
    const most = all.reduce((a, b) => Math.max(a, b), 1);
    const least = all.reduce((a, b) => Math.min(a, b), most);
    const few = Math.log10(most / least) > 2.5 || narrow.matches;
    const x = { title: `PS ingress, ${measure} bytes`, type: log ? "log" : "linear",
      tickformat: "~s", ticksuffix: "B" };
    if (log) x.dtick = few ? 1 : "D2";
    else x.rangemode = "tozero";
    const traces = curves(counted, (point) => point[measure],
      "%{x:.4s}B<br>iteration %{customdata[0]:,}, %{customdata[1]:.1f} s");
    // Nothing below the curves' own range: no fault may widen a log axis by decades.
    const place = (of) => ((log && of[measure] < least) || of[measure] <= 0 ? null : of[measure]);
    const chart = faults(goal(layout(x, upright(traces))), place, traces);
    Plotly.react("chart-ingress", traces, chart, config);
  }

  function iteration() {
    const traces = curves((curve) => curve.iteration, (point) => point.iteration,
      "iteration %{x:,}, %{customdata[1]:.1f} s");
    const title = data.rounds ? "round" : "iteration (updates applied)";
    const x = { title, tickformat: ",d", rangemode: "tozero" };
    // Between whole numbers there is nothing to mark.
    if (data.curves.every((curve) => curve.iteration.every((n) => n <= 10))) x.dtick = 1;
    const chart = faults(goal(layout(x, upright(traces))), (of) => of.iteration, traces);
    Plotly.react("chart-iteration", traces, chart, config);
  }

  function overTime() {
    const box = document.getElementById("charts-over-time");
    data.curves.forEach((curve, i) => {
      const id = `chart-over-time-${i}`;
      if (!document.getElementById(id)) {
        const figure = document.createElement("figure");
        const heading = document.createElement("h3");
        heading.innerHTML = curve.name;  // escaped where it was written
        const chart = document.createElement("div");
        chart.id = id;
        chart.className = "chart low";
        chart.setAttribute("role", "img");
        chart.setAttribute("aria-label", "Bytes per second that entered the parameter server, by kind.");
        figure.append(heading, chart);
        box.append(figure);
      }
      const { start, width, rates } = curve.ingress;
      const traces = Object.entries(rates).map(([kind, rate]) => ({
        type: "scatter", mode: "lines", stackgroup: "kinds", name: data.kinds[kind][0],
        // Steps from edge to edge, the last one closed by its own right edge.
        x: [...rate, 0].map((_, k) => start + width * k), y: [...rate, rate[rate.length - 1]],
        line: { width: 0, shape: "hv", color: data.kinds[kind][1] },
        hovertemplate: "<b>%{fullData.name}</b><br>%{y:.4s}B/s at %{x:.0f} s<extra></extra>" }));
      // Along the top, above the rates.
      for (const kind of Object.keys(data.fault_kinds)) {
        const found = curve.faults.filter((one) => one.kind === kind);
        if (!found.length) continue;
        traces.push({ type: "scatter", mode: "markers", yaxis: "y2", name: kind,
          x: found.map((one) => one.at.time), y: found.map(() => 0), text: found.map((one) => one.text),
          hovertemplate: "%{text}<extra></extra>",
          marker: { symbol: "line-ns", size: 11, line: { color: data.fault_kinds[kind], width: 1.5 } } });
      }
      const chart = layout({ title: `seconds since ${data.rounds ? "the programs" : "training"} began` },
        { title: "PS ingress", tickformat: "~s", ticksuffix: "B/s", rangemode: "tozero" });
      if (curve.faults.length) {
        chart.yaxis.domain = [0, 0.9];
        chart.yaxis2 = { domain: [0.92, 1], range: [-1, 1], visible: false, fixedrange: true };
      }
      Plotly.react(id, traces, chart, config);
    });
  }

  function byWorker() {
    const traces = data.curves.map((curve, i) => {
      const { workers, shares } = curve.ingress;
      return { type: "scatter", mode: "lines", name: curve.name, x: [shares[0], ...shares],
        y: [0, ...shares.map((_, k) => (100 * (k + 1)) / shares.length)],
        text: [workers[0], ...workers], customdata: [0, ...curve.ingress.bytes].map(bytes),
        hovertemplate: "<b>%{fullData.name}</b><br>%{text}: %{customdata}<br>"
          + "%{x:.3f} of the mean; %{y:.1f} % sent at most this<extra></extra>",
        line: { ...style(i).line, shape: "hv" } };
    });
    Plotly.react("chart-by-worker", traces,
      layout({ title: "ingress from a worker \u00f7 mean of the run's workers" },
        { title: "workers with at most this (%)", rangemode: "tozero" }), config);
  }

  function staleness() {
    const width = data.staleness_width;
    const traces = data.curves.map((run, i) => {
      // A step line from 0 to 0, so that histograms of several runs can be told apart.
      const shares = run.staleness;
      const x = shares.length ? [...shares.keys(), shares.length].map((k) => k * width) : [];
      const y = shares.length ? [...shares, 0] : [];
      return { type: "scatter", mode: "lines", name: run.name, x, y,
        hovertemplate: "<b>%{fullData.name}</b><br>%{y:.2f} % of the updates<br>staleness "
          + (width > 1 ? `from %{x:,}, ${width} wide` : "%{x:,}") + "<extra></extra>",
        line: { ...style(i).line, shape: "hv" } };
    });
    Plotly.react("chart-staleness", traces,
      layout({ title: "staleness (updates)", tickformat: ",d", rangemode: "tozero" },
        { title: width > 1 ? `updates (%) per ${width} of staleness` : "updates (%)", rangemode: "tozero" }),
      config);
  }

  function draw() {
    if (evaluated) { ingress(); iteration(); reachTable(); }
    overTime();
    byWorker();
    if (document.getElementById("chart-staleness")) staleness();
  }

  form.hidden = !evaluated;
  const change = () => { ingress(); iteration(); reachTable(); };
  form.addEventListener("change", change);
  form.elements.goal.addEventListener("input", change);
  form.addEventListener("submit", (event) => event.preventDefault());
  if (!evaluated) {
    for (const id of ["chart-ingress", "chart-iteration"]) document.getElementById(id).hidden = true;
  }
  draw();
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);

  let opened = [];
  addEventListener("beforeprint", () => {
    printing = true;
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const element of opened) element.open = true;
    draw();
    for (const chart of document.querySelectorAll(".chart:not([hidden])")) {
      Plotly.relayout(chart, { width: 660, height: chart.id === "chart-staleness" || chart.classList.contains("low") ? 225 : 320 });
    }
  });
  addEventListener("afterprint", () => {
    printing = false;
    for (const element of opened) element.open = false;
    draw();
    for (const chart of document.querySelectorAll(".chart:not([hidden])")) {
      Plotly.relayout(chart, { autosize: true, width: null, height: null });
    }
  });
})();
