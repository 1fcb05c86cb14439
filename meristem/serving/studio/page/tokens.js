// Tokens as a person reads them: vocabularies of bytes write each byte as a letter of its own.

const BYTES = new Map();
let beyond = 256;
for (let byte = 0; byte < 256; byte++) {
  const printed = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  BYTES.set(String.fromCodePoint(printed ? byte : beyond++), byte);
}
const SEEN = { " ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥", "▁": "␣" };

export function readable(token) {
  const letters = [...token];
  const bytes = letters.map((letter) => BYTES.get(letter));
  return whole(token, letters, bytes).replace(/[ \n\r\t▁]/g, (space) => SEEN[space]) || "∅";
}

// A token may hold half a character; one that is no bytes at all is its own name.
function whole(token, letters, bytes) {
  if (bytes.includes(undefined)) return token;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return letters.some((letter) => letter.codePointAt(0) > 255) ? `…${new TextDecoder().decode(new Uint8Array(bytes)).replaceAll("\ufffd", "")}…` : token;
  }
}
