// The faults that the AsyncAPI parser finds in a document, a line each. usage: FOLDER DOCUMENT
const { readFileSync } = require("node:fs");
const { Parser } = require(`${process.argv[2]}/@asyncapi/parser`);

new Parser().validate(readFileSync(process.argv[3], "utf8")).then((found) => {
  for (const fault of found) console.log(`${fault.path.join(".")}: ${fault.message}`);
});
