package snowbank.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.jspecify.annotations.Nullable;

/**
 * The files of TLS, in PEM. Each connection reads them again.
 *
 * @param ca the authorities, or null for those of Java
 * @param certificate the client's certificate, or null
 * @param key its private key, or null
 * @param serverName the name in the daemons' certificates, or null for the host of the address
 */
record TlsFiles(@Nullable Path ca, @Nullable Path certificate, @Nullable Path key, @Nullable String serverName) {
    static final TlsFiles NONE = new TlsFiles(null, null, null, null);

    private static final char[] PASSWORD = "for this object alone".toCharArray();
    private static final Pattern KEY =
        Pattern.compile("-----BEGIN ([A-Z ]*)PRIVATE KEY-----([^-]*)-----END", Pattern.DOTALL);

    /** Reads the files. Throws {@link IllegalArgumentException} for the first fault, with its file. */
    SSLContext context() {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(ca == null ? null : authorities(ca));
            KeyManager[] keys = certificate == null || key == null ? null : keys(certificate, key);
            context.init(keys, trust.getTrustManagers(), null);
            return context;
        } catch (GeneralSecurityException | IOException error) {
            throw new IllegalArgumentException("TLS cannot be set up: " + error.getMessage(), error);
        }
    }

    private static KeyStore authorities(Path file) throws GeneralSecurityException, IOException {
        KeyStore store = empty();
        for (Certificate authority : certificates(file)) {
            store.setCertificateEntry("ca-" + store.size(), authority);
        }
        return store;
    }

    private static KeyManager[] keys(Path certificate, Path key) throws GeneralSecurityException, IOException {
        Certificate[] chain = certificates(certificate).toArray(new Certificate[0]);
        PrivateKey privateKey = privateKey(key);
        if (!isPair(chain[0], privateKey)) {
            throw bad(key, "does not belong to the certificate " + certificate);
        }
        KeyStore store = empty();
        store.setKeyEntry("client", privateKey, PASSWORD, chain);
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, PASSWORD);
        return factory.getKeyManagers();
    }

    private static KeyStore empty() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(Path file) {
        byte[] text = read(file).getBytes(StandardCharsets.ISO_8859_1);
        try {
            var found = CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(text));
            if (!found.isEmpty()) {
                return found;
            }
        } catch (GeneralSecurityException error) {
            throw bad(file, "holds no readable certificate: " + error.getMessage());
        }
        throw bad(file, "holds no certificate (-----BEGIN CERTIFICATE-----)");
    }

    private static PrivateKey privateKey(Path file) {
        Matcher found = KEY.matcher(read(file));
        if (!found.find() || !found.group(1).isEmpty()) {
            throw bad(file, "holds no -----BEGIN PRIVATE KEY-----: `openssl pkcs8 -topk8 -nocrypt` converts other forms");
        }
        for (String algorithm : List.of("EC", "RSA", "EdDSA")) {
            try {
                byte[] decoded = Base64.getMimeDecoder().decode(found.group(2));
                return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(decoded));
            } catch (GeneralSecurityException | IllegalArgumentException other) {
                // The next algorithm may fit.
            }
        }
        throw bad(file, "holds no key of the kinds EC, RSA and EdDSA");
    }

    /** Signs and verifies, so that a key of another certificate is found before any connection. */
    private static boolean isPair(Certificate certificate, PrivateKey key) {
        String algorithm = switch (key.getAlgorithm()) {
            case "EC" -> "SHA256withECDSA";
            case "RSA" -> "SHA256withRSA";
            default -> "EdDSA";
        };
        try {
            Signature signature = Signature.getInstance(algorithm);
            signature.initSign(key);
            byte[] signed = signature.sign();
            signature.initVerify(certificate.getPublicKey());
            return signature.verify(signed);
        } catch (GeneralSecurityException error) {
            return false;
        }
    }

    private static String read(Path file) {
        try {
            return Files.readString(file, StandardCharsets.ISO_8859_1);
        } catch (IOException error) {
            throw bad(file, "cannot be read: " + error);
        }
    }

    private static IllegalArgumentException bad(Path file, String fault) {
        return new IllegalArgumentException("the TLS file " + file + " " + fault);
    }
}
