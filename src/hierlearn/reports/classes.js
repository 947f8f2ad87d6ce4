  // ------------------------------------------------------------------ the table of classes

  const counts = data.classes, SHOWN = 25; // rows of a page
  const ratio = (part, whole) => (whole ? part / whole : NaN);
  const columns = [
    ["class", (c) => fullName(c)],
    ["level", (c) => counts.level[c]],
    ["rows", (c) => counts.rows[c]],
    ["precision", (c) => ratio(counts.right[c], counts.decided[c])],
    ["recall", (c) => ratio(counts.right[c], counts.rows[c])],
    ["F1", (c) => ratio(2 * counts.right[c], counts.decided[c] + counts.rows[c])],
  ];
  const every = data.names.map((_, c) => c);
  const searched = every.map((c) => `${fullName(c)} ${title(c)}`.toLowerCase());
  let sorted = 2, falling = true, classPage = 0;

  function order(a, b) { // what is not defined comes last, either way
    const [left, right] = [a, b].map(columns[sorted][1]);
    if (left !== left || right !== right) return (left !== left) - (right !== right) || a - b;
    const less = left < right ? -1 : left > right ? 1 : 0;
    return (falling ? -less : less) || a - b;
  }
  function classRows(wanted) {
    const text = find("search").value.trim().toLowerCase(), which = find("which").value;
    const list = every.filter((c) => searched[c].includes(text)
      && (!which || (which === "leaves" ? !children[c].length : counts.level[c] === Number(which))));
    list.sort(order);
    const pages = Math.max(1, Math.ceil(list.length / SHOWN));
    classPage = Math.max(0, Math.min(wanted, pages - 1));
    find("class-place").textContent = `${classPage + 1} of ${number(pages)}`;
    find("class-before").disabled = classPage === 0;
    find("class-after").disabled = classPage === pages - 1;
    const from = classPage * SHOWN;
    const lines = list.slice(from, from + SHOWN).map(classRow);
    const none = element("tr", {}, element("td", { colspan: columns.length }, "No class has this name."));
    find("class-rows").replaceChildren(...(lines.length ? lines : [none]));
    [...find("class-heads").children].forEach((head, at) => {
      head.setAttribute("aria-sort", at !== sorted ? "none" : falling ? "descending" : "ascending");
    });
  }
  function classRow(c) {
    const link = button(fullName(c), () => { goTo(c); find("hierarchy").scrollIntoView(); },
      "Show it in the hierarchy");
    const line = element("tr", {}, element("th", { scope: "row" }, link, ...part("title", title(c))));
    columns.slice(1).forEach(([, value], at) => {
      const found = value(c);
      const text = at < 2 ? number(found) : found === found ? (100 * found).toFixed(1) : "n/a";
      const inside = at < 2 ? text : element("span", { class: "share" }, text);
      if (at >= 2) inside.style.setProperty("--share", `${100 * (found || 0)}%`);
      line.append(element("td", { class: "number" }, inside));
    });
    return line;
  }
  columns.forEach(([name], at) => {
    const sort = button(at < 3 ? name : `${name} %`, () => {
      falling = at === sorted ? !falling : at > 0;
      sorted = at;
      classRows(0);
    });
    find("class-heads").append(element("th", { scope: "col", class: at ? "number" : "" }, sort));
  });
  find("search").oninput = () => classRows(0);
  find("which").onchange = () => classRows(0);
  find("class-before").onclick = () => classRows(classPage - 1);
  find("class-after").onclick = () => classRows(classPage + 1);
  classRows(0);
