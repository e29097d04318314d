/** Runs the program in $SOURCE. A cluster's workers run it too. */

import { createRequire } from "node:module";

new Function("require", process.env.SOURCE)(createRequire(import.meta.url));
