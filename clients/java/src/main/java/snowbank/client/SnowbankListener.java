package snowbank.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;

/**
 * Is told what an operator may want to know. Its methods are called by one thread, in
 * order, and must return soon. While one does not, up to 1,000 later events wait.
 */
public interface SnowbankListener {
    /** The client has a connection to this endpoint. */
    default void connected(String endpoint) {}

    /** An endpoint failed: no connection, lost, late, or another protocol. */
    default void failed(String endpoint, SnowbankException reason) {}

    /** The daemon at this endpoint refused a request. */
    default void refused(String endpoint, SnowbankException refusal) {}

    /** Two endpoints hand out the same IDs: calls fail. */
    default void collision(String one, String other, SnowbankException collision) {}

    /** The two no longer do. */
    default void collisionOver(String one, String other) {}

    /** Returns a listener that logs: failures and refusals as warnings, collisions as errors. */
    static SnowbankListener logging(Logger logger) {
        return new SnowbankListener() {
            @Override
            public void connected(String endpoint) {
                logger.log(Level.INFO, "snowbank: connected to {0}", endpoint);
            }

            @Override
            public void failed(String endpoint, SnowbankException reason) {
                logger.log(Level.WARNING, "snowbank: {0}", reason.getMessage());
            }

            @Override
            public void refused(String endpoint, SnowbankException refusal) {
                logger.log(Level.WARNING, "snowbank: {0}", refusal.getMessage());
            }

            @Override
            public void collision(String one, String other, SnowbankException collision) {
                logger.log(Level.ERROR, "snowbank: {0}", collision.getMessage());
            }

            @Override
            public void collisionOver(String one, String other) {
                logger.log(Level.INFO, "snowbank: {0} and {1} no longer hand out the same IDs", one, other);
            }
        };
    }
}
