// The tokenizer and the tables of a report. `tokenmill.encode` gives the ids that `Tokenizer.encode` gives: it splits text
// by the same compiled tables (bpe_core/pretokenize/scanner.py) and merges by the same ranks
// (bpe_core/encoding/word_merging.py).
"use strict";

const tokenmill = (() => {
  const data = JSON.parse(document.getElementById("tokenizer-data").textContent);
  const PAIR = 2 ** 21; // All ids are below this, so left * PAIR + right is unique for a pair.
  const PLACE = 2 ** 32; // All places are below this, so a heap entry is rank * PLACE + place.
  const UNKNOWN = -3; // A character without a symbol gets the id UNKNOWN - code point.
  const GLUED = 0x110000; // Added to the code point of a character that has the end-of-word marker glued to it.
  const ENDS = 1; // The bit of a table entry that says that a match may end before the character.
  const AT_END = 255; // The table's column for the end of the text.

  // Data.

  function decodeBytes(base64) {
    const binary = atob(base64);
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  }

  function decodeNumbers(base64) {
    return new Int32Array(decodeBytes(base64).buffer);
  }

  /** Returns a function that computes its value on the first call and then keeps it. */
  function once(make) {
    let made = null;
    return () => (made ??= { value: make() }).value;
  }

  const tokens = once(() => {
    const bytes = decodeBytes(data.tokens);
    const ends = decodeNumbers(data.token_ends);
    return Array.from(ends, (end, id) => bytes.subarray(id ? ends[id - 1] : 0, end));
  });
  const merges = once(() => decodeNumbers(data.merges));
  const counts = once(() => data.counts && new Float64Array(decodeBytes(data.counts).buffer));
  const added = new Map(data.added_tokens.map((token) => [token.id, token]));

  const ranks = once(() => {
    const pairs = new Map();
    const made = [];
    for (let at = 0; at < merges().length; at += 3) {
      const [left, right, token] = merges().subarray(at, at + 3);
      const rank = data.ranked_by === "token" ? token : at / 3;
      pairs.set(left * PAIR + right, rank); // If a pair repeats, its last merge counts.
      made[rank] = token;
    }
    return { pairs, made };
  });

  const tables = once(() => ({
    transitions: decodeNumbers(data.scanner.transitions),
    startStates: decodeNumbers(data.scanner.start_states),
    blockStarts: decodeNumbers(data.scanner.block_starts),
    classes: decodeBytes(data.scanner.classes),
  }));

  const wholeWords = once(
    () => new Map(tokens().flatMap((token, id) => (added.has(id) || !token.length ? [] : [[keyOf(token), id]])))
  );

  function keyOf(bytes) {
    return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  }

  // Bytes and characters of UTF-8.

  const toBytes = new TextEncoder(); // Lone surrogates become U+FFFD.
  const toText = new TextDecoder("utf-8", { ignoreBOM: true }); // What is not UTF-8 becomes U+FFFD.

  function widthOf(lead) {
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  }

  function codePoint(bytes, at) {
    const lead = bytes[at];
    if (lead < 0x80) return lead;
    if (lead < 0xe0) return ((lead & 0x1f) << 6) | (bytes[at + 1] & 0x3f);
    const low = ((bytes[at + 1] & 0x3f) << 6) | (bytes[at + 2] & 0x3f);
    return lead < 0xf0 ? ((lead & 0x0f) << 12) | low : ((lead & 0x07) << 18) | (low << 6) | (bytes[at + 3] & 0x3f);
  }

  // Text -> parts: normalized text, and added tokens.

  const SPACE = "[\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
  const spaceBefore = new RegExp(`${SPACE}+$`, "u");
  const spaceAfter = new RegExp(`^${SPACE}+`, "u");
  const startsWord = data.word_characters ? new RegExp(`^${data.word_characters}`, "u") : null;
  // The browser's Unicode may be newer. Characters that tokenmill's tables do not list stay, and nothing joins them.
  const normalizable = data.normalizable ? new RegExp(`${data.normalizable}+`, "gu") : null;

  function normalize(text) {
    const form = normalizable ? text.replace(normalizable, (run) => run.normalize(data.unicode)) : text;
    return data.lower ? Array.from(form, (character) => data.lower[character] ?? character).join("") : form;
  }

  /** Returns a function that splits text into parts: those that are one of the added tokens, and the text between. */
  function makeFinder(chosen, passesSpecial) {
    const found = new Map(chosen.map((token) => [token.match, token]));
    const longestFirst = [...found.keys()].sort((a, b) => b.length - a.length);
    const escaped = longestFirst.map((match) => match.replace(/[\\^$.*+?()[\]{}|\/-]/g, "\\$&"));
    return (text) => {
      const parts = [];
      let end = 0;
      for (const match of escaped.length ? text.matchAll(new RegExp(escaped.join("|"), "g")) : []) {
        const token = found.get(match[0]);
        let start = match.index;
        let stop = start + match[0].length;
        if (token.special && passesSpecial) continue;
        const [before, after] = [text.slice(0, start), text.slice(stop)];
        // Chromium 156 does not match a character beyond U+FFFF by a set before `$`, so the last one is tested by itself.
        const last = [...before.slice(-2)].at(-1) ?? "";
        if (token.single_word && (startsWord.test(last) || startsWord.test(after))) continue;
        if (token.lstrip) start = Math.max(end, before.replace(spaceBefore, "").length);
        if (token.rstrip) stop = text.length - after.replace(spaceAfter, "").length;
        if (start >= stop) continue; // The token before it has taken all of it.
        if (start > end) parts.push({ text: text.slice(end, start) });
        parts.push({ text: text.slice(Math.max(start, end), stop), token });
        end = stop;
      }
      if (end < text.length) parts.push({ text: text.slice(end) });
      return parts;
    };
  }

  function makeSplitter(passesSpecial) {
    const all = data.added_tokens;
    const looked = passesSpecial && all.every((token) => token.special) ? [] : all;
    const raw = makeFinder(looked.filter((token) => !token.normalized), passesSpecial);
    const inNormalized = makeFinder(looked.filter((token) => token.normalized), passesSpecial);
    return (text) => raw(text).flatMap((part) => (part.token ? [part] : inNormalized(normalize(part.text))));
  }

  const partsOf = { plain: makeSplitter(true), allow: makeSplitter(false) };

  // Bytes -> words, each as its start and end.

  function matchEnd(bytes, start, stop, pattern) {
    const { transitions, startStates, blockStarts, classes } = tables();
    const firstBlock = (pattern * blockStarts.length) / startStates.length;
    let row = startStates[pattern];
    let end = start;
    for (let at = start; at < stop; at += widthOf(bytes[at])) {
      let column = bytes[at];
      if (column >= 0x80) {
        const code = codePoint(bytes, at);
        column = 128 + classes[blockStarts[firstBlock + (code >> 7)] + (code & 127)];
      }
      const entry = transitions[row + column];
      if (entry & ENDS) end = at;
      row = entry >>> 2;
      if (row === 0) return end;
    }
    return transitions[row + AT_END] & ENDS ? stop : end;
  }

  function splitOnce(bytes, [start, stop], pattern) {
    const words = [];
    let at = start;
    let gap = start;
    while (at < stop) {
      const end = matchEnd(bytes, at, stop, pattern);
      if (end > at) {
        if (data.keep_gaps && at > gap) words.push([gap, at]);
        words.push([at, end]);
        gap = end;
        at = end;
      } else {
        at += widthOf(bytes[at]);
      }
    }
    if (data.keep_gaps && gap < stop) words.push([gap, stop]);
    return words;
  }

  function splitWords(bytes) {
    let words = [[0, bytes.length]];
    for (let pattern = 0; pattern < tables().startStates.length; pattern += 1) {
      words = words.flatMap((word) => splitOnce(bytes, word, pattern));
    }
    return words;
  }

  // Words -> ids.

  const base = once(() => new Map(data.base_ids));

  function spell(word) {
    if (data.kind === "byte") return Array.from(word, (byte) => base().get(byte));
    const symbols = [];
    for (let at = 0; at < word.length; at += widthOf(word[at])) {
      const code = codePoint(word, at);
      const isGlued = data.marker === null && at + widthOf(word[at]) === word.length;
      symbols.push(base().get(isGlued ? code + GLUED : code) ?? UNKNOWN - code);
    }
    if (data.marker !== null) symbols.push(data.marker);
    return symbols;
  }

  function push(heap, entry) {
    let child = heap.length;
    heap.push(entry);
    while (child > 0 && heap[(child - 1) >> 1] > entry) {
      heap[child] = heap[(child - 1) >> 1];
      child = (child - 1) >> 1;
    }
    heap[child] = entry;
  }

  function pop(heap) {
    const [first] = heap;
    const entry = heap.pop();
    let parent = 0;
    for (let child = 1; child < heap.length; child = 2 * parent + 1) {
      if (child + 1 < heap.length && heap[child + 1] < heap[child]) child += 1;
      if (heap[child] >= entry) break;
      heap[parent] = heap[child];
      parent = child;
    }
    if (heap.length) heap[parent] = entry;
    return first;
  }

  /** Returns the ids of a word's symbols after all merges: the lowest rank first, then the leftmost. */
  function merge(symbols) {
    const { pairs, made } = ranks();
    const after = symbols.map((_, at) => at + 1);
    const before = symbols.map((_, at) => at - 1);
    const heap = [];
    const rankAt = (at) => {
      const right = symbols[after[at]];
      // Unknown characters are below zero and never merge; symbols that were merged into their left neighbour are null.
      return symbols[at] >= 0 && right >= 0 ? pairs.get(symbols[at] * PAIR + right) : undefined;
    };
    const wait = (at) => {
      const rank = rankAt(at);
      if (rank !== undefined) push(heap, rank * PLACE + at);
    };
    for (let at = 0; at < symbols.length - 1; at += 1) wait(at);
    while (heap.length) {
      const entry = pop(heap);
      const at = entry % PLACE;
      const rank = (entry - at) / PLACE;
      if (symbols[at] === null || rankAt(at) !== rank) continue; // The pair at this place has changed since.
      const gone = after[at];
      symbols[at] = made[rank];
      symbols[gone] = null;
      after[at] = after[gone];
      if (after[at] < symbols.length) before[after[at]] = at;
      if (before[at] >= 0) wait(before[at]);
      wait(at);
    }
    return symbols.filter((symbol) => symbol !== null);
  }

  function encodeWord(word) {
    const whole = data.ignore_merges ? wholeWords().get(keyOf(word)) : undefined;
    return whole !== undefined ? [whole] : merge(spell(word));
  }

  /** Returns the ids of a text; throws RangeError if a character has no symbol and there is no `unk` token. */
  function encode(text, special = "plain") {
    const ids = [];
    for (const part of partsOf[special](toText.decode(toBytes.encode(text)))) {
      if (part.token) {
        ids.push(part.token.id);
        continue;
      }
      const lacksSpace = data.add_prefix_space && part.text && !part.text.startsWith(" ");
      const bytes = toBytes.encode(lacksSpace ? ` ${part.text}` : part.text);
      for (const [start, end] of splitWords(bytes)) {
        for (const id of encodeWord(bytes.subarray(start, end))) ids.push(id);
      }
    }
    return ids.map(replaceUnknown);
  }

  function replaceUnknown(id) {
    if (id > UNKNOWN) return id;
    if (data.unknown_id === null) {
      const character = String.fromCodePoint(UNKNOWN - id);
      const missing = "is not in the vocabulary, and there is no unk token to replace it";
      throw new RangeError(`${readable(character)} ${missing}`);
    }
    return data.unknown_id;
  }

  // Tokens as people read them; the same as bpe_core/measuring/token_display.py.

  const hidden = /[\p{C}\p{Zl}\p{Zp}]|[^\P{Zs} ]/gu;

  /** Returns text on one line, with escapes for characters that cannot be seen; spaces stay. */
  function readable(text) {
    return text.replace(hidden, (character) => {
      if (character === "\n") return "⏎";
      if (character === "\t") return "⇥";
      if (character === "\r") return "\\r";
      const code = character.codePointAt(0).toString(16);
      const [letter, width] = code.length > 4 ? ["U", 8] : code.length > 2 ? ["u", 4] : ["x", 2];
      return `\\${letter}${code.padStart(width, "0")}`;
    });
  }

  /** Returns bytes as text, with \xNN for those that are not UTF-8. */
  function decodeToken(bytes) {
    const whole = toText.decode(bytes);
    if (!whole.includes("\ufffd")) return whole;
    let text = "";
    for (let at = 0; at < bytes.length; ) {
      const width = widthOf(bytes[at]);
      const character = toText.decode(bytes.subarray(at, at + width));
      // U+FFFD itself is three bytes wide.
      const isWhole = character !== "\ufffd" || (width === 3 && bytes[at] === 0xef && bytes[at + 1] === 0xbf);
      if (isWhole && [...character].length === 1) {
        text += character;
        at += width;
      } else {
        text += `\\x${bytes[at].toString(16).padStart(2, "0")}`;
        at += 1;
      }
    }
    return text;
  }

  /** Every id's token as `readable` shows it. */
  const spelled = once(() =>
    tokens().map((token, id) => {
      const glued = data.kind === "char" && !added.has(id) && token.at(-1) === 0xff;
      return readable(glued ? decodeToken(token.subarray(0, -1)) + data.end_of_word : decodeToken(token));
    })
  );

  return { data, added, tokens, merges, counts, encode, spelled };
})();

{
  const MAX_TOKENS_SHOWN = 2000;
  const MAX_CHARACTERS_AT_ONCE = 20000; // A longer text is encoded when typing pauses.
  const ROWS_AT_ONCE = 200;
  const number = (value) => value.toLocaleString("en-US");
  const byId = (id) => document.getElementById(id);

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // The text box.

  const ESCAPE = /\\(?:([nrt0\\])|x([\da-fA-F]{2})|u\{([\da-fA-F]{1,6})\}|u([\da-fA-F]{4}))/g;
  const ESCAPES = { n: "\n", r: "\r", t: "\t", 0: "\0", "\\": "\\" };

  function readEscapes(text) {
    return text.replace(ESCAPE, (whole, letter, ...codes) => {
      if (letter) return ESCAPES[letter];
      const code = parseInt(codes.find((one) => typeof one === "string"), 16);
      return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
    });
  }

  function tokenSpan(id, index) {
    const shown = tokenmill.spelled()[id].replaceAll("⏎", "⏎\n");
    const span = element("span", { className: `token colour-${index % 4}`, title: `id ${id}` }, shown);
    if (tokenmill.added.has(id)) span.classList.add("special");
    return span;
  }

  let typedIds = [];

  /** Fills the table, if it is open. */
  function showRows() {
    const rows = byId("typed-table").open ? typedIds.map(tokenRow) : [];
    byId("typed-rows").replaceChildren(...rows);
  }

  function tokenRow(id, index) {
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, number(index + 1)),
      element("td", { className: "written" }, tokenmill.spelled()[id].replaceAll(" ", "␣")),
      element("td", {}, String(id))
    );
  }

  function showTokens(text, ids) {
    const shown = ids.slice(0, MAX_TOKENS_SHOWN);
    byId("typed-tokens").replaceChildren(...shown.map(tokenSpan));
    typedIds = shown;
    showRows();
    byId("typed-ids").value = ids.join(" ");
    const characters = [...text].length;
    const bytes = new TextEncoder().encode(text).length;
    const parts = [`${number(ids.length)} tokens`, `${number(characters)} characters`, `${number(bytes)} bytes`];
    if (ids.length) parts.push(`${(bytes / ids.length).toFixed(2)} bytes per token`);
    if (ids.length > MAX_TOKENS_SHOWN) parts.push(`the first ${number(MAX_TOKENS_SHOWN)} tokens are shown`);
    return parts.join(", ");
  }

  let announcing = 0;

  /** Shows a sentence at once, and tells a screen reader of it when typing pauses. */
  function announce(sentence) {
    byId("typed-summary").textContent = sentence;
    clearTimeout(announcing);
    announcing = setTimeout(() => (byId("typed-status").textContent = sentence), 700);
  }

  function encodeTyped() {
    const raw = byId("typed").value;
    const text = byId("escapes").checked ? readEscapes(raw) : raw;
    try {
      announce(showTokens(text, tokenmill.encode(text, byId("allow-special")?.checked ? "allow" : "plain")));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      showTokens("", []);
      announce(error.message);
    }
  }

  let later = 0;

  if (tokenmill.data.scanner) {
    byId("box").hidden = false;
    byId("typed-table").addEventListener("toggle", showRows);
    for (const name of ["escapes", "allow-special"]) byId(name)?.addEventListener("input", encodeTyped);
    byId("typed").addEventListener("input", () => {
      clearTimeout(later);
      if (byId("typed").value.length < MAX_CHARACTERS_AT_ONCE) encodeTyped();
      else later = setTimeout(encodeTyped, 400);
    });
    encodeTyped();
  }

  // The vocabulary.

  const mergeOf = new Int32Array(tokenmill.tokens().length).fill(-1);
  const merges = tokenmill.merges();
  for (let rank = merges.length / 3 - 1; rank >= 0; rank -= 1) mergeOf[merges[3 * rank + 2]] = rank;

  const written = tokenmill.spelled().map((token) => token.replaceAll(" ", "␣"));
  const searched = written.map((token) => token.replaceAll("␣", " ").toLowerCase());

  const countOf = (id) => (mergeOf[id] < 0 || !tokenmill.counts() ? -1 : tokenmill.counts()[mergeOf[id]]);
  const ORDERS = {
    id: (a, b) => a - b,
    longest: (a, b) => tokenmill.tokens()[b].length - tokenmill.tokens()[a].length || a - b,
    frequent: (a, b) => countOf(b) - countOf(a) || a - b,
    written: (a, b) => (written[a] < written[b] ? -1 : written[a] > written[b] ? 1 : a - b),
  };

  let found = [];
  let numShown = 0;

  function search() {
    const wanted = byId("search").value;
    const asId = /^#(\d+)$/.exec(wanted);
    const needle = wanted.replaceAll("␣", " ").toLowerCase();
    const all = Array.from(written.keys());
    found = asId ? all.filter((id) => id === Number(asId[1])) : all.filter((id) => searched[id].includes(needle));
    if (byId("order").value !== "id") found.sort(ORDERS[byId("order").value]);
    byId("vocabulary-rows").replaceChildren();
    numShown = 0;
    showMore();
  }

  function showMore() {
    const next = found.slice(numShown, numShown + ROWS_AT_ONCE);
    byId("vocabulary-rows").append(...next.map(vocabularyRow));
    numShown += next.length;
    const rest = found.length - numShown;
    byId("more").hidden = rest === 0;
    byId("more").textContent = `Show ${number(Math.min(rest, ROWS_AT_ONCE))} more`;
    byId("vocabulary-status").textContent = `${number(found.length)} entries, ${number(numShown)} shown`;
  }

  function vocabularyRow(id) {
    const token = tokenmill.tokens()[id];
    const rank = mergeOf[id];
    const kind = tokenmill.added.get(id)?.special ? "special" : tokenmill.added.has(id) ? "added" : "base";
    const made = rank < 0 ? kind : `${written[merges[3 * rank]]} + ${written[merges[3 * rank + 1]]}`;
    const hex = Array.from(token, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const cells = [
      element("th", { scope: "row", className: "number" }, String(id)),
      element("td", { className: "written" }, written[id]),
      element("td", { className: "written" }, made),
      element("td", { className: "number" }, rank < 0 ? "" : number(rank)),
    ];
    if (tokenmill.counts()) cells.push(element("td", { className: "number" }, rank < 0 ? "" : number(countOf(id))));
    cells.push(element("td", { className: "hex" }, hex));
    return element("tr", {}, ...cells);
  }

  let waiting = 0;
  byId("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  });
  byId("order").addEventListener("input", search);
  byId("more").addEventListener("click", showMore);
  search();
}
