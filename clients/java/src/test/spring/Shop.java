package shop;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.HashSet;
import java.util.Set;
import java.util.stream.IntStream;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.config.EnableJpaRepositories;
import snowbank.client.SnowbankClient;

/** A Spring Boot application that saves entities that the example's generator numbers. */
@SpringBootApplication
@EnableJpaRepositories(considerNestedRepositories = true)
public class Shop {
    @Entity
    @Table(name = "orders")
    public static class Order {
        @Id
        @SnowbankIdGenerator.SnowbankId
        public Long id;
        public String item;
    }

    public interface Orders extends JpaRepository<Order, Long> {}

    @Bean
    SnowbankClient ids(@Value("${snowbank.endpoints}") String[] endpoints) {
        SnowbankClient client = new SnowbankClient(endpoints);
        SnowbankIdGenerator.use(client);
        return client;
    }

    public static void main(String[] arguments) {
        SnowbankClient client;
        try (var application = SpringApplication.run(Shop.class, arguments)) {
            client = application.getBean(SnowbankClient.class);
            Orders orders = application.getBean(Orders.class);
            orders.saveAll(IntStream.range(0, 100).mapToObj(number -> new Order()).toList());
            Set<Long> ids = new HashSet<>();
            orders.findAll().forEach(order -> ids.add(order.id));
            System.out.println(ids.size() + " orders");
        }
        try {
            client.next();
        } catch (IllegalStateException closed) {
            System.out.println("closed");
        }
    }
}
