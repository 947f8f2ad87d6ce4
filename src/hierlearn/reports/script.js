  const SVG = "http://www.w3.org/2000/svg";
  const THINNEST = 1.2, EDGE = 30, NARROWEST = 84, LETTER = 6.4; // pixels
  const PAGE = 8, MOST = 6; // mistakes per page, confused pairs per list
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);

  // Names and texts only ever become text nodes, never markup.
  function element(tag, attributes = {}, ...inside) {
    const inSvg = ["g", "rect", "text", "title"].includes(tag);
    const made = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  }
  const part = (name, text, tag = "span") => (text ? [element(tag, { class: name }, text)] : []);
  const picture = (source) => (source ? [element("img", { src: source, alt: "" })] : []);
  function button(text, act, title = "") {
    const made = element("button", { type: "button", title }, text);
    made.onclick = act;
    return made;
  }

  // ------------------------------------------------------------------ the tree

  const root = data.names.length; // the implicit root comes after the classes
  const names = [...data.names, data.root];
  const parent = data.parent.map((one) => (one < 0 ? root : one));
  const children = names.map(() => []);
  const leaves = names.map(() => 0), below = names.map(() => 0);
  const depth = names.map(() => 0); // levels below each class
  parent.forEach((above, c) => children[above].push(c));
  for (let c = root - 1; c >= 0; c--) { // a class comes after its parents
    leaves[c] = leaves[c] || 1;
    leaves[parent[c]] += leaves[c];
    below[parent[c]] += below[c] + 1;
    depth[parent[c]] = Math.max(depth[parent[c]], depth[c] + 1);
  }
  const largest = children[root].reduce((most, c) => Math.max(most, data.support[c]), 1);

  function pathTo(c) { // from the top class down to c
    const path = [];
    for (let one = c; one !== root; one = parent[one]) path.unshift(one);
    return path;
  }
  const fullName = (c) => (c === root || data.sep === null // in a DAG a name is enough
    ? names[c] : pathTo(c).map((one) => names[one]).join(data.sep));
  const often = new Map(); // how many classes share a name
  for (const name of data.names) often.set(name, (often.get(name) || 0) + 1);
  const shortName = (c) => (often.get(names[c]) > 1 ? fullName(c) : names[c]);
  const title = (c) => (data.titles && data.titles[c]) || ""; // what people call it, if known
  const titled = (c) => (title(c) ? `${fullName(c)} (${title(c)})` : fullName(c));
  const isIn = (c, above) => above === root || pathTo(c).includes(above);

  // ------------------------------------------------------------------ colors and figures

  let candidate = data.candidates[0], color = "accuracy", view = root, chosen = root;

  const rows = (classes) => classes.reduce((sum, c) => sum + data.support[c], 0);
  function accuracy(classes) { // a share, weighted by rows; -1 where there are none
    const all = rows(classes);
    const right = classes.reduce((sum, c) => sum + candidate.accuracy[c] * data.support[c], 0);
    return all ? right / all / 1000 : -1;
  }
  const mix = (most, least, share) =>
    `color-mix(in oklab, var(${most}) ${(100 * share).toFixed(1)}%, var(${least}))`;
  function fill(classes) {
    const share = accuracy(classes);
    if (share < 0) return "var(--none)";
    const size = Math.log1p(rows(classes) / classes.length) / Math.log1p(largest);
    if (color === "support") return mix("--many", "--few", Math.min(size, 1));
    return share < 0.5 ? mix("--mid", "--low", 2 * share) : mix("--high", "--mid", 2 * share - 1);
  }
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const plural = (value, word, more) => `${number(value)} ${value === 1 ? word : more}`;
  function figures(classes) {
    const text = plural(rows(classes), data.row, `${data.row}s`);
    return accuracy(classes) < 0 ? text : `${percent(accuracy(classes))} right, ${text}`;
  }

  // ------------------------------------------------------------------ the icicle: what is in view

  const plot = find("icicle");
  const frame = element("rect", { class: "frame" }); // around the chosen class, above all others
  let drawn = new Map(); // class -> its group, column and size

  function draw() {
    const width = Math.max(plot.clientWidth, 2 * NARROWEST);
    const height = Math.max(plot.clientHeight, NARROWEST); // a folded window has neither
    const columns = Math.max(1, Math.min(depth[view], Math.floor((width - EDGE) / NARROWEST)));
    const wide = (width - EDGE) / columns;
    const hadFocus = plot.contains(document.activeElement); // drawing again would lose it
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.replaceChildren();
    drawn = new Map();
    block([view], 0, 0, EDGE, height, 0);
    const waiting = [[[view], 0, height / leaves[view], 1]];
    while (waiting.length) {
      const [above, top, unit, column] = waiting.pop();
      let y = top, together = [], from = top;
      const flush = () => {
        if (!together.length) return;
        block(together, EDGE + (column - 1) * wide, from, wide, y - from, column);
        if (column < columns) waiting.push([together, from, unit, column + 1]);
        together = [];
      };
      for (const c of above.flatMap((one) => (children[one].length ? children[one] : [-one - 1]))) {
        const own = unit * leaves[c < 0 ? -c - 1 : c]; // negative: a leaf, with nothing beside it
        if (c < 0 || own >= THINNEST || y - from >= THINNEST) flush();
        if (!together.length) from = y;
        if (c >= 0) together.push(c); // those too thin to see share a block
        y += own;
        if (own >= THINNEST) flush();
      }
      flush();
    }
    if (!drawn.has(chosen)) chosen = view;
    mark(hadFocus);
    const steps = [root, ...pathTo(view)].map((c) => button(names[c], () => zoom(c), title(c)));
    find("trail").replaceChildren(...steps);
    const isShare = color === "accuracy";
    find("least").textContent = isShare ? "0 % right" : "1 row";
    find("most").textContent = isShare ? "100 %" : `${number(largest)} rows (logarithmic)`;
    find("ramp").className = color;
  }

  function block(classes, x, y, wide, tall, column) {
    const c = classes[0], alone = classes.length === 1;
    const who = alone ? titled(c) : `${number(classes.length)} classes`;
    const label = `${who}: ${figures(classes)}`;
    const group = element("g", { role: "treeitem", "aria-label": label, "aria-level": column + 1 });
    const size = { x, y, width: wide, height: tall };
    const rect = element("rect", { ...size, class: tall < 4 ? "thin" : "" });
    rect.style.fill = fill(classes);
    group.append(element("title", {}, label), rect);
    const room = Math.floor(((column ? wide : tall) - 12) / LETTER);
    const whole = column && title(c) ? `${names[c]} ${title(c)}` : names[c];
    const name = whole.length > room ? `${whole.slice(0, room - 1)}…` : whole;
    const middle = y + tall / 2;
    if (!column) {
      const transform = `translate(${x + wide / 2 + 4} ${middle}) rotate(-90)`;
      group.append(element("text", { transform, "text-anchor": "middle" }, name));
    } else if (alone && tall >= 14) {
      const two = tall >= 32, isShare = color === "accuracy" && data.support[c];
      group.append(element("text", { x: x + 6, y: middle + (two ? -3 : 4) }, name));
      const text = isShare ? percent(accuracy(classes)) : number(data.support[c]);
      if (two) group.append(element("text", { x: x + 6, y: middle + 12, class: "figure" }, text));
    }
    if (alone) {
      group.dataset.class = c;
      drawn.set(c, { group, column, size });
    }
    group.onclick = () => (alone ? press(c) : zoom(parent[c]));
    plot.append(group);
  }

  function mark(takeFocus) { // one class is chosen; it alone is reached by Tab
    for (const [c, { group }] of drawn) {
      const is = c === chosen;
      group.setAttribute("tabindex", is ? 0 : -1);
      group.setAttribute("aria-selected", is);
      if (is && takeFocus) group.focus({ preventScroll: true });
    }
    const size = Object.entries(drawn.get(chosen).size);
    for (const [name, value] of size) frame.setAttribute(name, value);
    plot.append(frame);
    describe(chosen);
  }
  const choose = (c) => { chosen = c; mark(true); };
  const zoom = (c, choice = c) => { view = c; chosen = choice; draw(); };
  const up = () => { if (view !== root) zoom(parent[view], view); };
  function press(c) {
    if (c === view) up();
    else if (children[c].length) zoom(c);
    else choose(c);
  }
  const goTo = (c) => zoom(children[c].length ? c : parent[c], c);

  function move(key) {
    const { column } = drawn.get(chosen);
    const beside = [...drawn.keys()].filter((c) => drawn.get(c).column === column);
    beside.sort((a, b) => drawn.get(a).size.y - drawn.get(b).size.y);
    const place = beside.indexOf(chosen);
    const next = {
      ArrowUp: beside[place - 1], ArrowDown: beside[place + 1],
      ArrowLeft: chosen === view ? undefined : parent[chosen],
      ArrowRight: children[chosen].find((c) => drawn.has(c)),
    }[key];
    if (next !== undefined) choose(next);
  }
  plot.onkeydown = (event) => {
    const enter = () => { if (chosen !== view) press(chosen); };
    const keys = { Enter: enter, " ": enter, Escape: up, Backspace: up, Home: () => zoom(root) };
    if (event.key.startsWith("Arrow")) move(event.key);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  };

  // ------------------------------------------------------------------ the chosen class

  function describe(c) {
    const its = [], others = [], all = candidate.confused || []; // none for sets of labels
    for (let at = 0; at < all.length; at += 3) {
      const pair = all.slice(at, at + 3);
      if (isIn(pair[0], c)) its.push(pair);
      else if (isIn(pair[1], c)) others.push(pair);
    }
    const inner = children[c].length > 0;
    const text = figures([c]) + (inner ? ` · ${plural(below[c], "class", "classes")} below` : "");
    const parts = [element("h3", {}, fullName(c)), ...part("title", title(c), "p")];
    parts.push(element("p", {}, text));
    if (candidate.confused) parts.push(...pairs(inner ? "Most confused" : "Its rows, predicted as another class", its));
    if (candidate.confused && c !== root) parts.push(...pairs("Rows of other classes, predicted as it", others));
    const kept = `Among the ${number(all.length / 3)} most frequent pairs of all.`;
    if (candidate.left_out) parts.push(element("p", {}, kept));
    find("class").replaceChildren(...parts);
  }
  function breakable(made) { // a long path breaks between classes, not inside a name
    if (data.sep === null) return made;
    const steps = made.textContent.split(data.sep);
    made.replaceChildren(...steps.flatMap((one, at) => (at + 1 < steps.length
      ? [one + data.sep, element("wbr")] : [one])));
    return made;
  }
  function pairs(heading, list) {
    const head = element("h4", {}, heading);
    if (!list.length) return [head, element("p", {}, "none")];
    const link = (c) => element("td", {},
      breakable(button(shortName(c), () => goTo(c), titled(c))), ...part("title", title(c)));
    const heads = ["true", "predicted", data.seeds > 1 ? "rows per run" : "rows"].map((one) => element("th", {}, one));
    const table = element("table", {}, element("tr", {}, ...heads));
    for (const [truth, decided, often] of list.slice(0, MOST)) {
      const share = element("td", {}, number(often / data.seeds));
      table.append(element("tr", {}, link(truth), link(decided), share));
    }
    return [head, table];
  }

  // ------------------------------------------------------------------ the worst mistakes

  let page = 0;
  function mistakes(wanted) {
    const height = find("height").value;
    const all = candidate.worst.map((one, at) => [one, (candidate.evidence || [])[at] || []]);
    const list = all.filter(([one]) => !height || one[3] === Number(height));
    const pages = Math.max(1, Math.ceil(list.length / PAGE));
    page = Math.max(0, Math.min(wanted, pages - 1));
    find("place").textContent = `${page + 1} of ${pages}`;
    find("before").disabled = page === 0;
    find("after").disabled = page === pages - 1;
    find("memory").hidden = !(candidate.evidence || []).length;
    const shown = list.slice(page * PAGE, (page + 1) * PAGE).map(mistake);
    find("list").replaceChildren(...(shown.length ? shown : [element("p", {}, "No mistakes.")]));
  }
  function mistake([[row, truth, decided, height, seeds, percentage], evidence]) {
    const text = [data.rows[row], `height ${height}`, `p ${(percentage / 100).toFixed(2)}`];
    if (data.seeds > 1) text.push(`${seeds} of ${data.seeds} runs agree`);
    const details = element("p", { class: "details" }, text.join(" · "));
    const card = element("article", { class: "mistake" }, details);
    card.append(...picture((data.images || {})[row]));
    if (row in data.texts) card.append(element("blockquote", {}, data.texts[row]));
    const cell = (kind, c) => (c === undefined ? element("span", { class: kind })
      : element("span", { class: kind }, names[c], ...part("title", title(c))));
    const paths = element("div", { class: "paths" });
    for (const side of ["true", "predicted"]) paths.append(element("span", { class: "side" }, side));
    const left = pathTo(truth), right = pathTo(decided);
    for (let at = 0; at < Math.max(left.length, right.length); at++) {
      if (left[at] === right[at]) paths.append(cell("both", left[at]));
      else paths.append(cell("true", left[at]), cell("decided", right[at]));
    }
    card.append(paths);
    if (evidence.length) card.append(answeredFrom(evidence));
    return card;
  }
  function answeredFrom(evidence) { // the remembered rows that weigh most in the answer
    const share = percent(evidence.reduce((sum, one) => sum + one.weight, 0) / 1000);
    const which = evidence.length === 1 ? "the top row has" : `the top ${evidence.length} rows have`;
    const caption = element("caption", {}, element("b", {}, "Answered from"));
    caption.append(` (${which} ${share} of the weight)`);
    const tag = (is, name, text) => (is ? [element("b", { class: name }, text)] : []);
    const heads = ["weight", "training row", "label"];
    const lines = evidence.map((one) => element("tr", {}, ...[
      [percent(one.weight / 1000)],
      [...picture(one.image), ...part("id", one.id), ...part("text", one.text)],
      [...tag(one.decided, "decided", "misled"), ...tag(one.true, "true", "truth"),
        ...one.labels.flatMap((c) => [...part("label", fullName(c)), ...part("title", title(c))]),
        ...part("label", !one.labels.length && "no label"),
        ...part("label", one.more && `and ${number(one.more)} more`)],
    ].map((inside) => element("td", {}, ...inside))));
    const top = element("tr", {}, ...heads.map((one) => element("th", { scope: "col" }, one)));
    return element("table", { class: "evidence" }, caption, element("thead", {}, top),
      element("tbody", {}, ...lines));
  }

  // ------------------------------------------------------------------ controls

  const selects = document.querySelectorAll("select.candidate");
  for (const select of selects) select.onchange = () => {
    for (const other of selects) other.value = select.value;
    candidate = data.candidates[select.value];
    mistakes(0);
    draw();
  };
  find("color").onchange = ({ target }) => { color = target.value; draw(); };
  if (find("list")) {
    find("height").onchange = () => mistakes(0);
    find("before").onclick = () => mistakes(page - 1);
    find("after").onclick = () => mistakes(page + 1);
    mistakes(0);
  }
  find("find").onchange = ({ target }) => {
    const wanted = target.value.trim().toLowerCase();
    let found = names.findIndex((name) => name.toLowerCase() === wanted);
    if (found < 0) found = names.findIndex((_, c) => fullName(c).toLowerCase().includes(wanted));
    if (found < 0) found = names.findIndex((_, c) => title(c).toLowerCase().includes(wanted));
    target.setCustomValidity(found < 0 ? "no class has this name" : "");
    target.reportValidity();
    if (wanted && found >= 0) goTo(found);
  };
  find("theme").onclick = () => {
    const themes = ["system", "light", "dark"], page = document.documentElement;
    const next = themes[(themes.indexOf(page.dataset.theme) + 1) % themes.length];
    page.dataset.theme = next;
    find("theme").textContent = `Theme: ${next}`;
  };
  for (const { id, firstElementChild: head } of document.querySelectorAll("main > section")) {
    document.querySelector("header nav").append(element("a", { href: `#${id}` }, head.textContent));
  }
  let width = 0;
  new ResizeObserver(() => { // only a new width: a drawing may change nothing else
    if (plot.clientWidth !== width) { width = plot.clientWidth; draw(); }
  }).observe(plot);
