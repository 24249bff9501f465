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
  const evaluated = data.runs.some((run) => run.iteration.length);

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
      margin: { l: 8, r: 12, t: 36, b: 8 }, hovermode: "closest",
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
    return { line: { color: colour, width: 2, dash: data.runs[i].dash },
      marker: { color: colour, symbol: data.runs[i].symbol, size: 7, maxdisplayed: 12 } };
  }

  const percent = { title: "test accuracy (%)", rangemode: "normal" };

  function curves(of, hover) {
    return data.runs.map((run, i) => ({
      type: "scatter", mode: "lines+markers", name: run.name, x: of(run), y: run.accuracy,
      customdata: run.iteration.map((n, k) => [n, run.time[k]]),
      hovertemplate: `<b>%{fullData.name}</b><br>%{y:.2f} %<br>${hover}<extra></extra>`,
      ...style(i),
    }));
  }

  function ingress() {
    const measure = chosen("measure");
    const log = chosen("scale") === "log";
    // A log axis has no place for the evaluation before any byte.
    const bytes = (run) => run[measure].map((n) => (log && n <= 0 ? null : n));
    const all = data.runs.flatMap(bytes).filter((n) => n > 0);
    const most = all.reduce((a, b) => Math.max(a, b), 1);
    const least = all.reduce((a, b) => Math.min(a, b), most);
    const few = Math.log10(most / least) > 2.5 || narrow.matches;
    const x = { title: `PS ingress, ${measure} bytes`, type: log ? "log" : "linear",
      tickformat: "~s", ticksuffix: "B" };
    if (log) x.dtick = few ? 1 : "D2";
    else x.rangemode = "tozero";
    Plotly.react("chart-ingress",
      curves(bytes, "%{x:.4s}B<br>iteration %{customdata[0]:,}, %{customdata[1]:.1f} s"),
      layout(x, percent), config);
  }

  function iteration() {
    Plotly.react("chart-iteration",
      curves((run) => run.iteration, "iteration %{x:,}, %{customdata[1]:.1f} s"),
      layout({ title: "iteration (updates applied)", tickformat: ",d", rangemode: "tozero" }, percent),
      config);
  }

  function staleness() {
    const width = data.staleness_width;
    const traces = data.runs.map((run, i) => {
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
    if (evaluated) { ingress(); iteration(); }
    staleness();
  }

  form.hidden = !evaluated;
  form.addEventListener("change", ingress);
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
      Plotly.relayout(chart, { width: 660, height: chart.id === "chart-staleness" ? 225 : 320 });
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
