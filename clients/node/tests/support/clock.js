/** Moves a clock of this process: `Date`, or the monotonic `performance`. */
export async function withClock(owner, aheadMs, work) {
  const now = owner.now;
  // Node 18 does not let `performance.now` be assigned.
  const set = (value) => Object.defineProperty(owner, "now", { value, configurable: true });
  set(() => now.call(owner) + aheadMs);
  try {
    return await work();
  } finally {
    set(now);
  }
}
