import java.util.function.LongSupplier;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.id.IdentifierGenerator;

/**
 * Numbers Hibernate's entities. Hibernate makes one generator for each entity, so they share a
 * supplier, which the application sets before it builds the session factory:
 *
 * <pre>{@code
 * SnowbankIdGenerator.use(client);
 *
 * @Id @GeneratedValue(generator = "snowbank")
 * @GenericGenerator(name = "snowbank", type = SnowbankIdGenerator.class)
 * private long id;
 * }</pre>
 *
 * <p>For Hibernate 6. In Hibernate 5.2 and newer, {@code strategy = "SnowbankIdGenerator"} stands in
 * place of the type.
 */
public class SnowbankIdGenerator implements IdentifierGenerator {
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
