import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.HashSet;
import java.util.Set;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import snowbank.client.SnowbankClient;

/** Saves entities that the example's generator numbers. */
public class Orders {
    @Entity
    @Table(name = "orders")
    public static class Order {
        @Id
        @SnowbankIdGenerator.SnowbankId
        public long id;
        public String item;
    }

    public static void main(String[] addresses) {
        try (SnowbankClient client = new SnowbankClient(addresses)) {
            SnowbankIdGenerator.use(client);
            try (SessionFactory sessions = new Configuration()
                    .setProperty("hibernate.connection.url", "jdbc:sqlite:hibernate.db")
                    .setProperty("hibernate.dialect", "org.hibernate.community.dialect.SQLiteDialect")
                    .setProperty("hibernate.hbm2ddl.auto", "create")
                    .addAnnotatedClass(Order.class).buildSessionFactory()) {
                sessions.inTransaction(session -> {
                    for (int number = 0; number < 100; number++) {
                        Order order = new Order();
                        order.item = "item " + number;
                        session.persist(order);
                    }
                });
                Set<Long> ids = new HashSet<>();
                sessions.inTransaction(session ->
                    ids.addAll(session.createQuery("select id from Orders$Order", Long.class).list()));
                System.out.println(ids.size() + " orders");
            }
        }
    }
}
