// Draws every figure of the page from its JSON, and shows what belongs to the chosen view.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const chooser = document.getElementById("view");
  const texts = Array.from(document.querySelectorAll("script.figures"), (script) => script.textContent);
  const figures = texts.flatMap((text) => JSON.parse(text));

  function fitted(layout, width, numTraces) {
    const paper = dark.matches ? "#1b2026" : "#f8f9fb";
    const ink = dark.matches ? "#d8dee4" : "#1f2328";
    layout.font = { ...layout.font, color: ink };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: paper, font: { color: ink } };
    if (width < 480) {
      layout.legend = { ...layout.legend, font: { size: 11 } };
      layout.height += 11 * numTraces; // the legend is a column
      layout.xaxis.nticks = 4;
    }
    layout.dragmode = touch.matches ? false : "zoom"; // a finger on a plot scrolls the page
    return layout;
  }

  function draw() {
    const view = chooser ? chooser.selectedIndex : 0;
    for (const element of document.querySelectorAll("[data-view]")) {
      element.hidden = Number(element.dataset.view) !== view;
    }
    const shown = figures.map(({ name, views }) => ({
      plot: document.getElementById(name),
      figure: structuredClone(views[views.length > 1 ? view : 0]),
    }));
    for (const { plot, figure } of shown) {
      plot.parentElement.hidden = figure === null;
    }
    for (const { plot, figure } of shown.filter(({ figure }) => figure)) { // now that all have their widths
      const layout = fitted(figure.layout, plot.clientWidth, figure.data.length);
      Plotly.react(plot, figure.data, layout, { displayModeBar: false, responsive: true });
    }
  }

  function unfold() {
    const target = document.getElementById(location.hash.slice(1));
    for (let folded = target?.closest("details"); folded; folded = folded.parentElement.closest("details")) {
      folded.open = true;
    }
    target?.scrollIntoView();
  }

  draw();
  unfold();
  chooser?.addEventListener("change", draw);
  dark.addEventListener("change", draw);
  addEventListener("hashchange", unfold);
})();
