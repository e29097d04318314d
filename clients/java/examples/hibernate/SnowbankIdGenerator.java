import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.function.LongSupplier;
import org.hibernate.annotations.IdGeneratorType;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.id.IdentifierGenerator;

/**
 * Numbers Hibernate's entities. Hibernate makes one generator for each entity, so they share a
 * supplier, which the application sets before it builds the session factory:
 *
 * <pre>{@code
 * SnowbankIdGenerator.use(client);
 *
 * @Id @SnowbankIdGenerator.SnowbankId
 * private long id;
 * }</pre>
 *
 * <p>For Hibernate 6 and 7. In Spring Boot a {@code @Bean} that returns the client calls
 * {@code use}, and Spring closes the client.
 */
public class SnowbankIdGenerator implements IdentifierGenerator {
    /** Marks a field whose number is an ID of Snowbank. */
    @IdGeneratorType(SnowbankIdGenerator.class)
    @Retention(RetentionPolicy.RUNTIME)
    @Target({ElementType.FIELD, ElementType.METHOD})
    public @interface SnowbankId {}

    private static volatile LongSupplier ids;

    /** Takes IDs from this supplier, such as a {@code SnowbankClient}. */
    public static void use(LongSupplier supplier) {
        ids = supplier;
    }

    @Override
    public Long generate(SharedSessionContractImplementor session, Object entity) {
        LongSupplier supplier = ids;
        if (supplier == null) {
            throw new IllegalStateException("call SnowbankIdGenerator.use before the session factory is built");
        }
        return supplier.getAsLong();
    }
}
