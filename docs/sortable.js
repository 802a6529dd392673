// A click on a head sorts the table by that column; empty cells stay last.
for (const head of document.querySelectorAll("table.docutils th")) {
  head.style.cursor = "pointer";
  head.onclick = () => {
    const body = head.closest("table").tBodies[0], at = head.cellIndex;
    const up = (head.dataset.up = head.dataset.up === "1" ? "" : "1");
    const cell = (row) => row.cells[at].textContent.trim();
    const order = (a, b) => (a === "") - (b === "") || (up ? 1 : -1) * (a - b || a.localeCompare(b));
    body.append(...[...body.rows].sort((a, b) => order(cell(a), cell(b))));
  };
}
