"use strict";
// The slider walks along the curve: the marker moves, figures are rewritten. Without this script the
// page shows the size that was kept, and no slider.
(() => {
  // What is folded away on screen belongs on paper, also where the style sheet cannot unfold it.
  let unfolded = [];
  window.addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    for (const folded of unfolded) folded.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const folded of unfolded) folded.open = false;
  });
  // A table that fits needs no stop of the Tab key.
  const boxes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls = target.scrollWidth > target.clientWidth;
      target.toggleAttribute("tabindex", scrolls);
      if (scrolls) target.setAttribute("tabindex", "0");
      if (scrolls) target.setAttribute("role", "region");
      else target.removeAttribute("role");
    }
  });
  for (const box of document.querySelectorAll(".sb-scroll")) boxes.observe(box);
  const data = document.getElementById("sb-curve-data");
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
  document.getElementById("sb-controls").hidden = false;
  show();
})();
