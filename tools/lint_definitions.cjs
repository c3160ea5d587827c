// Checks state machine definitions by AWS's language service, and their expressions by the reference JSONata.
//
//     node lint_definitions.cjs FILE…      a JSON file each; prints {"files", "expressions", "findings": […]}
//
// One process for all: starting node costs more than the work.
"use strict";

const { readFileSync } = require("node:fs");
const { basename } = require("node:path");
const { getLanguageService, TextDocument } = require("amazon-states-language-service");
const jsonata = require("jsonata");

const EXPRESSION = /^\{%([\s\S]*)%\}$/;

/** Every expression of a definition, with its place. */
function* expressions(value, path = "$") {
  if (typeof value === "string") {
    const found = EXPRESSION.exec(value);
    if (found) yield [path, found[1]];
  } else if (value !== null && typeof value === "object") {
    for (const [name, part] of Object.entries(value)) yield* expressions(part, `${path}.${name}`);
  }
}

async function main(files) {
  const service = getLanguageService({});
  const findings = [];
  const parsed = new Map();
  let count = 0;
  for (const file of files) {
    const text = readFileSync(file, "utf-8");
    const document = TextDocument.create(`file://${file}`, "asl", 1, text);
    const problems = await service.doValidation(document, service.parseJSONDocument(document));
    for (const { message, range } of problems) {
      findings.push(`${basename(file)}:${range.start.line + 1}: language service: ${message}`);
    }
    for (const [path, expression] of expressions(JSON.parse(text))) {
      count += 1;
      if (!parsed.has(expression)) {
        try {
          jsonata(expression);
          parsed.set(expression, null);
        } catch (error) {
          parsed.set(expression, `${error.code} ${error.message}`);
        }
      }
      const problem = parsed.get(expression);
      if (problem !== null) findings.push(`${basename(file)}: ${path}: jsonata: ${problem}`);
    }
  }
  process.stdout.write(JSON.stringify({ files: files.length, expressions: count, distinct: parsed.size, findings }));
}

main(process.argv.slice(2));
