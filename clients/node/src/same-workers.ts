/**
 * The check that no two endpoints are daemons with the same worker IDs: they would hand out the
 * same IDs. Containers and machines do not see each other's locks, but a client sees all its
 * endpoints.
 */

import { performance } from "node:perf_hooks";
import { SnowbankError } from "./errors.js";
import { type Info, sharedWorkerId } from "./info.js";
import type { Pool, Target } from "./pool.js";

/**
 * The time before the first look, and between two looks while daemons collide, in ms. A client with
 * a shorter life costs the other endpoints nothing. A daemon that restarts can look like two for a
 * moment, so a collision counts when two looks in a row find it.
 */
const CONFIRMATION_MS = 1000;

/** The time between two looks while an endpoint does not answer, and between two checks, in ms. */
const REPETITION_MS = 60_000;

interface Collision {
  targets: [Target, Target];
  instances: [string, string];
  workerId: number;
  layout: string;
}

/** The check of one client. */
export class WorkerCheck {
  readonly #pool: Pool;
  #began = Number.NEGATIVE_INFINITY;
  #isRunning = false;
  #isStopped = false;
  /** The error of every call while two endpoints hand out the same IDs. */
  error: SnowbankError | undefined;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  /** Starts a check in the background, unless one is running. */
  start(): void {
    if (this.#isRunning) {
      return;
    }
    this.#isRunning = true;
    const now = performance.now();
    const begins = Math.max(now, this.#began + REPETITION_MS);
    this.#began = begins;
    void this.#run(begins + CONFIRMATION_MS - now);
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** Looks until all endpoints have answered and none collide. */
  async #run(firstPauseMs: number): Promise<void> {
    let earlier: Collision | undefined;
    let pauseMs = firstPauseMs;
    while (pauseMs > 0) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs).unref());
      const [infos, isSilent] = await this.#look();
      if (this.#isStopped) {
        return;
      }
      const found = collisionOf(infos);
      // One that did not answer, as in a restart, may still have the same worker IDs.
      const isConfirmed =
        found === undefined ? !isSilent || earlier === undefined : isSame(found, earlier);
      if (isConfirmed) {
        this.error = found && errorOf(found);
      }
      pauseMs = 0;
      if (found !== undefined || (isSilent && earlier !== undefined)) {
        pauseMs = CONFIRMATION_MS;
      } else if (isSilent) {
        pauseMs = REPETITION_MS;
      }
      earlier = found;
    }
    this.#isRunning = false;
  }

  /** Asks each endpoint, all at the same time. The second value says whether one was silent. */
  async #look(): Promise<[[Target, Info][], boolean]> {
    const endpoints = new Set(this.#pool.targets.map((target) => target.endpoint));
    await Promise.all([...endpoints].map((endpoint) => this.#pool.lookUpIfDue(endpoint)));
    const targets = this.#isStopped || this.#pool.targets.length < 2 ? [] : [...this.#pool.targets];
    const opened = await Promise.all(
      targets.map((target) => this.#pool.open(target, () => {}).catch(() => undefined)),
    );
    // All were open at the same time: one daemon that restarts cannot answer as two.
    const infos: [Target, Info][] = [];
    opened.forEach((open, index) => {
      open?.connection.retire();
      if (open !== undefined) {
        infos.push([targets[index]!, open.info]);
      }
    });
    return [infos, infos.length < targets.length];
  }
}

function collisionOf(infos: readonly [Target, Info][]): Collision | undefined {
  for (const [index, [one, mine]] of infos.entries()) {
    for (const [other, theirs] of infos.slice(index + 1)) {
      const shared = sharedWorkerId(mine, theirs);
      if (shared !== undefined) {
        const instances: [string, string] = [mine.instance ?? "", theirs.instance ?? ""];
        return { targets: [one, other], instances, ...shared };
      }
    }
  }
  return undefined;
}

function isSame(one: Collision, other: Collision | undefined): boolean {
  return (
    one.targets.every((target, index) => target === other?.targets[index]) &&
    one.instances.every((instance, index) => instance === other?.instances[index]) &&
    one.workerId === other?.workerId
  );
}

function errorOf({ targets, workerId, layout }: Collision): SnowbankError {
  const [one, other] = targets.map((target) => target.name);
  const found = `${one} and ${other} are two daemons with worker ID ${workerId} of the layout ${layout}`;
  const advice = "stop one of them, and start it with worker IDs that no other daemon has";
  return new SnowbankError("same_worker_ids", `${found}: both hand out the same IDs; ${advice}`);
}
