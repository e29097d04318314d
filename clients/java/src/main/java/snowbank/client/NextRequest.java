package snowbank.client;

/**
 * A request for IDs.
 *
 * @param source the source's name, or null for the default source
 * @param maxWaitMs the time that the daemon may wait, or {@link Frame#DEFAULT_WAIT}
 */
record NextRequest(int count, String source, int maxWaitMs, boolean explicit, boolean partial) {
    NextRequest withCount(int fewer) {
        return new NextRequest(fewer, source, maxWaitMs, explicit, partial);
    }
}
