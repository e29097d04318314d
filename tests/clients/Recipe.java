import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Runs the recipe for Java of docs/clients.md, which the test puts beside this file:
 * Recipe PORT PORT. Prints each ID. The test kills a daemon meanwhile.
 */
public class Recipe {
    private static final Logger LIBRARY = Logger.getLogger("net.spy.memcached");

    public static void main(String[] ports) throws Exception {
        // It logs every key of a request that the kill interrupts.
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        LIBRARY.setLevel(Level.OFF);
        List<InetSocketAddress> addresses = new ArrayList<>();
        for (String port : ports) {
            addresses.add(new InetSocketAddress("127.0.0.1", Integer.parseInt(port)));
        }
        Ids ids = new Ids(addresses);
        draw(ids, 5_000);
        // At the end threads share the buffer.
        Thread other = new Thread(() -> draw(ids, 500));
        other.start();
        draw(ids, 500);
        other.join();
    }

    private static void draw(Ids ids, int count) {
        for (int drawn = 0; drawn < count; drawn++) {
            try {
                System.out.println(ids.next());
                Thread.sleep(0, 400_000);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
