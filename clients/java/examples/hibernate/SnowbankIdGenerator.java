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
 * @GenericGenerator(name = "snowbank", strategy = "SnowbankIdGenerator")
 * private long id;
 * }</pre>
 *
 * <p>For Hibernate 5.2 and newer. In Hibernate 3 and 4 the session's type is
 * {@code org.hibernate.engine.SessionImplementor}.
 */
public class SnowbankIdGenerator implements IdentifierGenerator {
    private static volatile LongSupplier ids;

    /** Takes IDs from this supplier: a {@code SnowbankClient}, or the {@code Ids} of a source. */
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
