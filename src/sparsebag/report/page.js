"use strict";
// The slider walks along the frontier: markers move, figures are rewritten. Without this script the
// page shows the size that was kept.
(() => {
  // What is folded away on screen belongs on paper.
  window.addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
  const data = document.getElementById("sb-frontier-data");
  const slider = document.getElementById("sb-size");
  if (!data || !slider) return;
  const points = JSON.parse(data.textContent);
  const markers = [...document.querySelectorAll(".sb-marker")].map((marker) => {
    const path = JSON.parse(marker.dataset.path);
    return { marker, x: path.x, y: path.y };
  });
  const show = () => {
    const at = Number(slider.value);
    const point = points[at];
    for (const { marker, x, y } of markers) {
      marker.setAttribute("cx", x[at]);
      marker.setAttribute("cy", y[at]);
    }
    for (const cell of document.querySelectorAll("[data-figure]")) {
      cell.textContent = point[cell.dataset.figure] ?? "–";
    }
    slider.setAttribute("aria-valuetext", point.words);
  };
  slider.addEventListener("input", show);
  document.getElementById("sb-back")?.addEventListener("click", () => {
    slider.value = slider.defaultValue;
    show();
    slider.focus();
  });
  show();
})();
