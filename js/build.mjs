// SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
// SPDX-License-Identifier: Apache-2.0
// Builds the widget and the offline page's script into dtscope_jupyter/static; needs only esbuild's binary.

import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "dtscope_jupyter", "static");
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: !process.env.DTSCOPE_PLAIN,
  target: "es2022",
  legalComments: "none",
  define: { "define.amd": "false" },
  logLevel: "warning",
};

mkdirSync(out, { recursive: true });
await build({ ...common, entryPoints: ["src/widget.ts"], format: "esm", outfile: join(out, "widget.js") });
await build({ ...common, entryPoints: ["src/standalone.ts"], format: "iife", outfile: join(out, "standalone.js") });
await build({ ...common, entryPoints: ["src/style.css"], outfile: join(out, "widget.css") });
for (const name of ["widget.js", "standalone.js", "widget.css"]) {
  const bytes = readFileSync(join(out, name));
  process.stdout.write(`${name} ${bytes.length} bytes, ${gzipSync(bytes).length} gzipped\n`);
}
