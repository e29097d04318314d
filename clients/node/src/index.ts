/** The client of Snowbank for Node. README.md shows how to use it. */

export { Batch } from "./batch.js";
export { type BatchOptions, type CallOptions, Client } from "./client.js";
export type { TlsOptions } from "./dial.js";
export { type RefusalCode, SnowbankError, type SnowbankErrorCode } from "./errors.js";
export type { Ids, IdsOptions } from "./ids.js";
export type { Info, SourceInfo } from "./info.js";
export type { ClientOptions } from "./options.js";
