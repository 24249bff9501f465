"use strict";
// Draws the report's charts as the page's data describes them (testbed/results/figures/chart.py), in the
// page's own colours, and marks where curves reach the goal that its reader asks for. A page that grows
// has newer data drawn (``report.show``).
const report = (() => {
  let data = null, evaluated = false;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const form = () => document.querySelector(".switches");
  const config = { responsive: true, displaylogo: false, scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  let printing = false;

  const chosen = (name) => form().querySelector(`input[name=${name}]:checked`).value;
  const array = (of) => (Array.isArray(of) ? of : data.arrays[of]);
  const MEASURES = ["payload", "message", "wire"];
  const AXES = ["iteration", "time", "joules"];
  const isPercent = () => data.quality.name === "accuracy";

  // A link may ask for a view: report.html#ingress=payload&axis=linear&accuracy=95; or &goal=4.3
  function chooseAsked() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const [name, key] of [["measure", "ingress"], ["scale", "axis"]]) {
      const button = form().querySelector(`input[name=${name}][value="${CSS.escape(asked.get(key) ?? "")}"]`);
      if (button) button.checked = true;
    }
    for (const key of isPercent() ? ["accuracy", "goal"] : ["goal"]) {
      if (Number.isFinite(parseFloat(asked.get(key)))) form().elements.goal.value = asked.get(key);
    }
  }

  function target() {
    const value = form().elements.goal.valueAsNumber;
    return Number.isFinite(value) ? value : data.goal;
  }
  const goalInWords = () => `${isPercent() ? "" : `${data.quality.name} `}${target() ?? "\u2014"} ${data.quality.unit}`.trim();

  // Where each curve reaches the goal: at the first of its steps that is as good; undefined if nowhere.
  function reached() {
    const goal = target();
    return data.curves.map((curve) => (goal === null ? undefined
      : curve.steps.find((step) => (data.quality.better === "higher" ? step.goal >= goal : step.goal <= goal))));
  }

  // Three digits, as the tables have them.
  function three(value) {
    const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    // toLocaleString alone rounds the decimal text, 1.275 up; the tables round the number, which is less.
    return Number(value.toFixed(digits))
      .toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function ratio(value) {
    if (!Number.isFinite(value) || value <= 0) return "\u2014";
    if (value === 1) return "1";
    if (Math.max(value, 1 / value) < 1.005) return value.toFixed(3);
    return value < 1 ? `1/${three(1 / value)}` : three(value);
  }

  function reachTable() {
    const measure = chosen("measure"), points = reached(), base = points[data.baseline];
    const headings = document.querySelectorAll("#reached thead th");
    headings[0].innerHTML = `to reach ${goalInWords()}`;  // escaped where it was written
    headings[7].textContent = headings[7].textContent.replace(/^\w+/, measure);
    document.querySelectorAll("#reached tbody tr").forEach((line, i) => {
      const point = points[i];
      const cells = [...(point ?? { cells: data.curves[i].never }).cells, ratio(point?.[measure] / base?.[measure])];
      cells.forEach((cell, k) => { line.children[k + 1].textContent = cell; });
    });
  }

  // The look of a curve by its place, or of a colour.
  function look(which) {
    if (typeof which === "string") return { color: which, dash: "solid", symbol: "circle" };
    const of = (list) => list[which % list.length];
    const { looks } = data;
    return { color: of(dark.matches && !printing ? looks.dark : looks.light), dash: of(looks.dashes),
      symbol: of(looks.symbols) };
  }

  const KINDS = {
    line: ({ color, dash, symbol }, series) => ({ mode: series.markers ? "lines+markers" : "lines",
      line: { color, width: 2, dash }, marker: { color, symbol, size: 7, maxdisplayed: 12 } }),
    steps: ({ color, dash }) => ({ mode: "lines", line: { color, width: 2, dash, shape: "hv" } }),
    stack: ({ color }) => ({ mode: "lines", stackgroup: "stack", fillcolor: color,
      line: { color, width: 0, shape: "hv" } }),
    points: ({ color }) => ({ mode: "markers", marker: { color, size: 5, opacity: 0.6 } }),
    ticks: ({ color }) => ({ mode: "markers", marker: { symbol: "line-ns", size: 11, line: { color, width: 1.5 } } }),
    // With a template it would be told of, in an empty box, in place of the tick at its beginning.
    spans: ({ color }) => ({ mode: "lines", line: { color, width: 7 }, opacity: 0.5, hoverinfo: "skip", hovertemplate: null }),
    star: ({ color }, series) => ({ mode: "markers", marker: { symbol: series.hollow ? "star-open" : "star", size: 15,
      color, line: { width: 1, color: getComputedStyle(document.documentElement).getPropertyValue("--ink") } } }),
  };

  // What Plotly draws of a panel; a name is in the legend once, and hides all that has it.
  function traces(panel, x, yaxis, known) {
    const found = [];
    for (const series of panel.series) {
      const own = look(series.look), { name } = series, texts = array(series.texts);
      const group = { type: "scatter", legendgroup: name || "none", yaxis };
      if (series.band) {
        // There along the lower edge, and back along the upper one.
        const [low, high] = series.band.map(array), there = array(series.x);
        found.push({ ...group, mode: "lines", fill: "toself", hoverinfo: "skip", showlegend: false,
          x: [...there, ...[...there].reverse()], y: [...low, ...[...high].reverse()],
          line: { width: 0 }, fillcolor: own.color, opacity: 0.2 });
      }
      const values = `${panel.y.label || "value"}: %{y}<br>${x.label}: %{x}`.replaceAll("\n", " ");
      const told = [`<b>${name}</b>`, ...(panel.y.ticks ? [] : [values]), ...(texts.length ? ["%{text}"] : [])];
      found.push({ ...group, name, showlegend: Boolean(name) && !known.has(name), x: array(series.x), y: array(series.y),
        text: texts, hovertemplate: `${told.join("<br>")}<extra></extra>`, ...KINDS[series.kind](own, series) });
      known.add(name);
    }
    return found;
  }

  function axis(of, values, frame) {
    const found = { ...frame, hoverformat: ".4~r", title: { text: of.label.replaceAll("\n", "<br>"), standoff: 10 } };
    const known = values.filter((value) => value !== null);
    const least = known.reduce((a, b) => Math.min(a, b), Infinity), most = known.reduce((a, b) => Math.max(a, b), -Infinity);
    if (of.unit) Object.assign(found, { tickformat: "~s", ticksuffix: of.unit, hoverformat: ".4~s" });
    if (of.whole) Object.assign(found, { tickformat: ",d", hoverformat: ",d" });
    // Between whole numbers there is nothing to mark.
    if (of.whole && most <= 10) found.dtick = 1;
    if (of.log) Object.assign(found, { type: "log", dtick: most / least > 300 || narrow.matches ? 1 : "D2" });
    if (of.low !== null && of.high !== null) found.range = [of.low, of.high];
    else if (of.low === 0) found.rangemode = "tozero";
    if (of.within) found.autorangeoptions = { clipmin: of.within[0], clipmax: of.within[1] };
    if (of.ticks) Object.assign(found, { showticklabels: false, showgrid: false, ticks: "", fixedrange: true, title: {} });
    return found;
  }

  // A plot: its panels from above, over one axis of x, which is named below the last.
  function layout(plot) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name, onPaper) => (printing ? onPaper : style.getPropertyValue(name).trim());
    const ink = colour("--ink", "#000000"), line = colour("--line", "#bbbbbb"), soft = colour("--soft", "#444444");
    const frame = { gridcolor: line, linecolor: line, zeroline: false, automargin: true,
      tickfont: { color: soft }, ticks: "outside", tickcolor: line, ticklen: 4 };
    const small = narrow.matches && !printing;
    const all = (panel, of) => panel.series.flatMap((series) => array(series[of]));
    const chart = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: small ? 12 : 13, color: ink },
      margin: { l: 8, r: 40, t: 36, b: 8 }, hovermode: "closest", hoverlabel: { align: "left" },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", traceorder: "normal" },
      showlegend: true, dragmode: small ? false : "zoom", uirevision: "newer data leave the reader's view as it is",
      modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      xaxis: axis(plot.x, all(plot.panels[0], "x"), frame), shapes: [], annotations: [],
    };
    const drawn = [], known = new Set();
    const gap = 0.03, room = 1 - gap * (plot.panels.length - 1);
    const whole = plot.panels.reduce((sum, panel) => sum + panel.height, 0);
    let top = 1;
    plot.panels.forEach((panel, i) => {
      const y = `y${i ? i + 1 : ""}`, bottom = Math.max(0, top - room * panel.height / whole);
      chart[y.replace("y", "yaxis")] = { ...axis(panel.y, all(panel, "y"), frame), domain: [bottom, top],
        ...(panel.height < 1 ? { nticks: 3 } : {}) };
      chart.xaxis.anchor = y;
      drawn.push(...traces(panel, plot.x, y, known));
      for (const across of panel.lines) {
        const { color, dash } = look(across.look), upright = across.way === "x";
        chart.shapes.push({ type: "line", layer: "below", line: { color, width: 1, dash: across.dotted ? "dot" : dash },
          ...(upright ? { x0: across.at, x1: across.at, yref: `${y} domain`, y0: 0, y1: 1 }
            : { xref: "x domain", x0: 0, x1: 1, yref: y, y0: across.at, y1: across.at }) });
        if (upright) chart.annotations.push({ x: plot.x.log ? Math.log10(across.at) : across.at, yref: "paper", y: bottom,
          text: across.words, textangle: -90, showarrow: false, xanchor: "right", yanchor: "bottom", font: { size: 11 } });
      }
      if (panel.nothing) chart.annotations.push({ xref: "paper", yref: "paper", x: 0.5, y: (bottom + top) / 2,
        text: panel.nothing, showarrow: false });
      top = bottom - gap;
    });
    return [drawn, chart];
  }

  // A plot with the stars and the line of the goal; ``place`` is the name of what its x axis counts.
  function withGoal(plot, place) {
    const points = reached();
    const stars = points.flatMap((point, i) => (point && point[place] !== null ? [{ kind: "star", name: data.curves[i].name, look: i,
      x: [point[place]], y: [point.value], hollow: point.reached < data.curves[i].runs, band: null,
      texts: [`reaches ${goalInWords()} with ${MEASURES.map((m, k) => `${point.cells[k + 1]} ${m}`).join(", ")}`] }] : []));
    const [main, ...below] = plot.panels;
    const line = { way: "y", at: target(), look: "#888888", dotted: true, words: "" };
    return { ...plot, panels: [{ ...main, series: [...main.series, ...stars],
      lines: stars.length ? [line, ...main.lines] : main.lines }, ...below] };
  }

  const react = (element, plot) => Plotly.react(element, ...layout(plot), config);

  // The box of each of a chart's plots, under its title; that of a plot without a title is the chart's.
  function boxes(element, plots) {
    if (!plots[0].title) return [element];
    if (element.children.length !== plots.length) {
      element.replaceChildren();
      plots.forEach((plot, i) => {
        const figure = document.createElement("figure"), heading = document.createElement("h3");
        const box = document.createElement("div");
        heading.innerHTML = plot.title;  // escaped where it was written
        Object.assign(box, { id: `${element.id}-${i}`, className: "chart low", role: "img", ariaLabel: element.dataset.label });
        figure.append(heading, box);
        element.append(figure);
      });
    }
    return element.querySelectorAll(".chart");
  }

  function drawReaching() {
    const measure = chosen("measure");
    const charts = { ingress: [`ingress-${measure}-${chosen("scale")}`, measure],
      ...Object.fromEntries(AXES.map((axis) => [axis, [axis, axis]])) };
    for (const [name, [found, place]] of Object.entries(charts)) {
      // That of energy is there where any is known; a page that was opened before may still lack its place.
      const element = data.charts[found] && document.getElementById(`chart-${name}`);
      if (element) react(element, withGoal(data.charts[found].plots[0], place));
    }
    reachTable();
  }

  function draw() {
    if (evaluated) drawReaching();
    for (const [name, { plots }] of Object.entries(data.charts)) {
      const element = document.getElementById(`chart-${name}`);
      if (element && !AXES.includes(name)) boxes(element, plots).forEach((box, i) => react(box, plots[i]));
    }
  }

  function show(newer) {
    data = newer;
    evaluated = "iteration" in data.charts;
    form().hidden = !evaluated;
    for (const name of ["ingress", ...AXES]) {
      const element = document.getElementById(`chart-${name}`);
      if (element) element.hidden = !evaluated;
    }
    draw();
  }

  const isSwitch = (event) => form().contains(event.target);
  for (const kind of ["change", "input"]) {
    document.addEventListener(kind, (event) => { if (isSwitch(event)) drawReaching(); });
  }
  document.addEventListener("submit", (event) => { if (isSwitch(event)) event.preventDefault(); });
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  data = JSON.parse(document.getElementById("data").textContent);
  chooseAsked();
  show(data);

  let opened = [];
  addEventListener("beforeprint", () => {
    printing = true;
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const element of opened) element.open = true;
    draw();
    for (const chart of document.querySelectorAll(".chart:not([hidden])")) {
      Plotly.relayout(chart, { width: 660, height: chart.classList.contains("low") ? 225 : 320 });
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
  return { show };
})();
