/** The client of Snowbank for Node. README.md shows how to use it. */

export type { Ids } from "./buffer.js";
export { type BatchOptions, type CallOptions, Client, type IdsOptions } from "./client.js";
export { type Action, type RefusalCode, SnowbankError, type SnowbankErrorCode } from "./errors.js";
export type { ClientOptions } from "./options.js";
export type { ClientEvents, Stats } from "./stats.js";
