/**
 * The client of Snowbank. Make one {@link snowbank.client.SnowbankClient} for the application. What
 * may be null says so.
 */
@NullMarked
package snowbank.client;

import org.jspecify.annotations.NullMarked;
