// Draws the plots of the page from its data block: in light or dark, for a desktop or a phone, and again when either
// changes. Hides a run in all plots at once, and switches between the views of a plot.
(async () => {
  "use strict";

  // Plotly is in the page deflated and in base 85: five letters are four bytes.
  const unpacked = async (text) => {
    const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
    const value = new Uint8Array(128);
    for (let place = 0; place < 85; place++) value[letters.charCodeAt(place)] = place;
    const missing = (5 - (text.length % 5)) % 5;
    const padded = text + "~".repeat(missing);
    const bytes = new Uint8Array((padded.length / 5) * 4);
    for (let from = 0, to = 0; from < padded.length; from += 5) {
      let word = 0;
      for (let next = from; next < from + 5; next++) word = word * 85 + value[padded.charCodeAt(next)];
      for (let shift = 24; shift >= 0; shift -= 8) bytes[to++] = Math.floor(word / 2 ** shift) % 256;
    }
    const stream = new Blob([bytes.subarray(0, bytes.length - missing)]).stream();
    return new Response(stream.pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const script = document.createElement("script");
  script.textContent = await unpacked(document.getElementById("plotly").textContent);
  document.body.append(script); // The page's policy names its hash, so nothing else would run here.
  const book = JSON.parse(document.getElementById("report-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const touch = matchMedia("(pointer: coarse)");
  const hidden = new Set();
  const chosen = new Map();
  const drawn = new Map();

  // Colours are tokens; only values under a key that speaks of colour are replaced, so no label can be taken for one.
  const painted = (node, tokens, key = "") => {
    if (Array.isArray(node)) return node.map((item) => painted(item, tokens, key));
    if (node && typeof node === "object") {
      return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, painted(value, tokens, name)]));
    }
    return typeof node === "string" && key.includes("color") && Object.hasOwn(tokens, node) ? tokens[node] : node;
  };

  const draw = (figure) => {
    const place = document.getElementById(figure.id);
    const view = figure.views[chosen.get(figure.id) ?? 0];
    const shape = narrow.matches && view.narrow ? view.narrow : view;
    const theme = book.themes[dark.matches ? "dark" : "light"];
    const data = painted(shape.data, theme.tokens).map((trace) => ({
      ...trace,
      visible: !(trace.meta && hidden.has(trace.meta.run)),
    }));
    const layout = { ...painted(shape.layout, theme.tokens), template: theme.template, autosize: true };
    // On a phone a finger on a plot must still scroll the page.
    layout.dragmode = touch.matches || narrow.matches ? false : "zoom";
    const config = { responsive: true, displaylogo: false, displayModeBar: false };
    drawn.set(figure.id, { data, layout });
    return Plotly.react(place, data, layout, config);
  };

  const drawAll = async () => {
    await Promise.all(book.figures.map(draw));
    document.documentElement.setAttribute("data-drawn", "yes");
  };

  for (const chip of document.querySelectorAll(".chip")) {
    chip.addEventListener("click", () => {
      const run = Number(chip.dataset.run);
      if (!hidden.delete(run)) hidden.add(run);
      chip.setAttribute("aria-pressed", String(!hidden.has(run)));
      drawAll();
    });
  }
  for (const figure of book.figures) {
    const place = document.getElementById(figure.id);
    const card = place.parentElement;
    card.querySelector(".save").addEventListener("click", () => {
      // Outside the page a picture needs the title and the legend that the page gives around it.
      const { data, layout } = drawn.get(figure.id);
      const size = { width: 900, height: layout.height + 40 };
      const words = {
        title: { text: figure.title, x: 0.02, xanchor: "left" },
        legend: { orientation: "h", y: 1, yref: "container", yanchor: "top", x: 0.98, xanchor: "right" },
        showlegend: figure.legend && book.runs > 1,
        margin: { ...layout.margin, t: 60 },
      };
      const picture = { data, layout: { ...layout, ...words, ...size } };
      Plotly.downloadImage(picture, { format: "png", filename: figure.id, ...size, scale: 2 });
    });
    const buttons = card.querySelectorAll(".switch button");
    for (const button of buttons) {
      button.addEventListener("click", () => {
        chosen.set(figure.id, Number(button.dataset.view));
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        draw(figure);
      });
    }
  }
  dark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  drawAll();
})();
