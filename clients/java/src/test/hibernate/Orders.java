import java.util.HashSet;
import java.util.Set;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import snowbank.client.SnowbankClient;

/**
 * Saves entities that the example's generator numbers. The mapping is in XML, which needs no
 * annotations.
 */
public class Orders {
    private static final String MAPPING = """
        <?xml version="1.0"?>
        <!DOCTYPE hibernate-mapping PUBLIC "-//Hibernate/Hibernate Mapping DTD 3.0//EN"
          "http://www.hibernate.org/dtd/hibernate-mapping-3.0.dtd">
        <hibernate-mapping>
          <class name="Orders$Order" table="orders" lazy="false">
            <id name="id" type="long"><generator class="SnowbankIdGenerator"/></id>
            <property name="item" type="string"/>
          </class>
        </hibernate-mapping>
        """;

    public static class Order {
        private long id;
        private String item;

        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }

        public String getItem() {
            return item;
        }

        public void setItem(String item) {
            this.item = item;
        }
    }

    public static void main(String[] arguments) {
        Configuration configuration = new Configuration()
            .setProperty("hibernate.connection.driver_class", "org.sqlite.JDBC")
            .setProperty("hibernate.connection.url", "jdbc:sqlite:orders.db")
            .setProperty("hibernate.connection.pool_size", "1")
            .setProperty("hibernate.dialect", "org.hibernate.dialect.HSQLDialect")
            .setProperty("hibernate.bytecode.use_reflection_optimizer", "false")
            .addXML(MAPPING);
        try (SnowbankClient client = new SnowbankClient(arguments)) {
            SnowbankIdGenerator.use(client);
            SessionFactory sessions = configuration.buildSessionFactory();
            Session session = sessions.openSession();
            session.beginTransaction();
            session.createSQLQuery("CREATE TABLE orders (id BIGINT PRIMARY KEY, item TEXT)").executeUpdate();
            for (int number = 0; number < 100; number++) {
                Order order = new Order();
                order.setItem("item " + number);
                session.save(order);
            }
            session.getTransaction().commit();
            Set<Object> ids = new HashSet<>(session.createSQLQuery("SELECT id FROM orders").list());
            System.out.println(ids.size() + " orders");
            session.close();
            sessions.close();
        }
    }
}
