import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import snowbank.client.SnowbankClient;

/**
 * Numbers rows from two daemons: {@code java NumberRows JDBC-URL ROWS ADDRESS…}. A BIGINT column
 * holds an ID.
 */
public class NumberRows {
    public static void main(String[] arguments) throws Exception {
        int rows = Integer.parseInt(arguments[1]);
        String[] addresses = java.util.Arrays.copyOfRange(arguments, 2, arguments.length);
        try (SnowbankClient client = new SnowbankClient(addresses);
                Connection database = DriverManager.getConnection(arguments[0])) {
            database.createStatement().execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, item TEXT)");
            database.setAutoCommit(false);
            try (PreparedStatement insert = database.prepareStatement("INSERT INTO orders VALUES (?, ?)")) {
                for (int row = 0; row < rows; row++) {
                    insert.setLong(1, client.next());
                    insert.setString(2, "item " + row);
                    insert.executeUpdate();
                }
            }
            database.commit();
            System.out.println(rows + " rows");
        }
    }
}
