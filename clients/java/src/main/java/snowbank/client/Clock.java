package snowbank.client;

/**
 * The clocks of the age limit. Tests replace them.
 *
 * <p>Java has no clock that is both monotonic and runs while the machine sleeps: {@link
 * System#nanoTime} stands still in sleep on Linux, and the wall clock can be set. So the client
 * reads both, and the longer time counts. A wall clock that is set forward costs the buffered IDs.
 * One that is set back changes nothing.
 */
interface Clock {
    Clock SYSTEM = new Clock() {
        @Override
        public long monotonicNanos() {
            return System.nanoTime();
        }

        @Override
        public long wallMillis() {
            return System.currentTimeMillis();
        }
    };

    long monotonicNanos();

    long wallMillis();
}
