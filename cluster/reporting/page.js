"use strict";
// Charts are static pictures at first. This makes a chart interactive when its Explore button is pressed.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 820px)");
  const opened = {};

  const text = async (id) => {
    const letters = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const once = (id) => (opened[id] ??= text(id));
  const library = async () => {
    const script = await once("gradwire-library");
    if (!window.vegaEmbed) (0, eval)(script);
  };

  // Vega computes with colours, so it gets the current values of the CSS variables.
  const coloured = (value, styles) => {
    if (Array.isArray(value)) return value.map((item) => coloured(item, styles));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, styles)]));
    const found = typeof value === "string" && value.match(/^var\((--[a-z]+)\)$/);
    return found ? styles.getPropertyValue(found[1]).trim() : value;
  };

  const draw = async (figure) => {
    await library();
    const chart = JSON.parse(await once("gradwire-data"))[figure.dataset.chart];
    const styles = getComputedStyle(document.documentElement);
    const spec = coloured(narrow.matches ? chart.narrow : chart.wide, styles);
    spec.datasets = chart.data;
    const rows = Object.values(chart.data).reduce((sum, some) => sum + some.length, 0);
    const place = figure.querySelector(".live");
    await window.vegaEmbed(place, spec, { actions: false, renderer: rows > 4000 ? "canvas" : "svg", tooltip: { theme: "custom" } });
    figure.classList.add("is-live");
  };

  for (const button of document.querySelectorAll(".explore")) {
    const figure = button.closest("figure");
    button.hidden = !("DecompressionStream" in window);
    button.addEventListener("click", async () => {
      button.textContent = "one moment …";
      try {
        await draw(figure);
        button.remove();
      } catch (error) {
        button.textContent = `cannot be explored here: ${error.message}`;
      }
    });
  }
  const again = () => document.querySelectorAll("figure.is-live").forEach(draw);
  dark.addEventListener("change", again);
  narrow.addEventListener("change", again);
})();
