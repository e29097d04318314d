package snowbank.client;

import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A client's figures since it was made, for a monitoring system.
 *
 * @param calls calls that were answered, those of the buffer included
 * @param retries requests after the first of a call
 * @param refusals ERROR replies of daemons
 * @param failures failures of endpoints: no connection, lost, late, or another protocol
 * @param ids IDs that were handed out
 * @param dropped IDs that were too old, or that nobody waited for any more
 * @param oldestMs the highest age at which {@code next()} returned an ID
 * @param endpoint the endpoint that the client is connected to
 */
public record Stats(long calls, long retries, long refusals, long failures, long ids, long dropped, long oldestMs,
        Optional<String> endpoint) {

    /** The figures that calls count. */
    static final class Counts {
        final AtomicLong calls = new AtomicLong();
        final AtomicLong retries = new AtomicLong();
        final AtomicLong refusals = new AtomicLong();
        final AtomicLong failures = new AtomicLong();
        final AtomicLong ids = new AtomicLong();
        final AtomicLong dropped = new AtomicLong();
        final AtomicLong oldestMs = new AtomicLong();
    }
}
