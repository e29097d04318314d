package snowbank.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/**
 * The authorities that a client trusts, and its own certificate (PEM). Each connection reads the
 * files again, so that certificates can be renewed while the client runs.
 *
 * @param ca the authorities, or null for those of the Java installation
 * @param certificate the client's certificate, or null
 * @param key its private key, or null
 * @param serverName the name that the server's certificate must have, or null for the host of the
 *     address
 */
record TlsFiles(Path ca, Path certificate, Path key, String serverName) {
    static final TlsFiles SYSTEM = new TlsFiles(null, null, null, null);

    private static final Pattern KEY =
        Pattern.compile("-----BEGIN ([A-Z ]*)PRIVATE KEY-----([^-]*)-----END", Pattern.DOTALL);

    /** Begins a session with the server at that address. */
    SSLEngine session(Address address) {
        String host = serverName == null ? address.host() : serverName;
        // The zone of an IPv6 address means something on this machine only.
        int zone = host.indexOf('%');
        SSLEngine engine = context().createSSLEngine(zone < 0 ? host : host.substring(0, zone), address.port());
        engine.setUseClientMode(true);
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
        engine.setSSLParameters(parameters);
        return engine;
    }

    /**
     * Reads the files.
     *
     * @throws IllegalArgumentException for the first fault, with its file
     */
    SSLContext context() {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys(), authorities(), null);
            return context;
        } catch (GeneralSecurityException | IOException error) {
            throw new IllegalArgumentException("TLS cannot be set up: " + error.getMessage(), error);
        }
    }

    private TrustManager[] authorities() throws GeneralSecurityException, IOException {
        KeyStore store = null;
        if (ca != null) {
            store = empty();
            int index = 0;
            for (Certificate authority : certificates(ca, "CA certificates")) {
                store.setCertificateEntry("ca-" + index++, authority);
            }
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private KeyManager[] keys() throws GeneralSecurityException, IOException {
        if (certificate == null && key == null) {
            return null;
        }
        if (certificate == null || key == null) {
            throw new IllegalArgumentException(
                "a client certificate needs both files: give the certificate and its private key");
        }
        List<Certificate> chain = certificates(certificate, "client certificate");
        PrivateKey privateKey = privateKey();
        checkPair(chain.get(0), privateKey);
        KeyStore store = empty();
        char[] password = "for this object alone".toCharArray();
        store.setKeyEntry("client", privateKey, password, chain.toArray(new Certificate[0]));
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, password);
        for (KeyManager manager : factory.getKeyManagers()) {
            if (manager instanceof javax.net.ssl.X509ExtendedKeyManager keys) {
                return new KeyManager[] {new AlwaysShown(keys)};
            }
        }
        return factory.getKeyManagers();
    }

    /**
     * Shows the client's certificate whatever authorities the server names. Java's own choice shows
     * none if the names differ, and then the server can only say that it got none.
     */
    private static final class AlwaysShown extends javax.net.ssl.X509ExtendedKeyManager {
        private final javax.net.ssl.X509ExtendedKeyManager keys;

        AlwaysShown(javax.net.ssl.X509ExtendedKeyManager keys) {
            this.keys = keys;
        }

        private String alias(String[] types) {
            for (String type : types) {
                String[] aliases = keys.getClientAliases(type, null);
                if (aliases != null && aliases.length > 0) {
                    return aliases[0];
                }
            }
            return null;
        }

        @Override
        public String chooseEngineClientAlias(String[] types, Principal[] issuers, SSLEngine engine) {
            return alias(types);
        }

        @Override
        public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
            return alias(types);
        }

        @Override
        public String[] getClientAliases(String type, Principal[] issuers) {
            return keys.getClientAliases(type, null);
        }

        @Override
        public String[] getServerAliases(String type, Principal[] issuers) {
            return keys.getServerAliases(type, issuers);
        }

        @Override
        public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
            return keys.chooseServerAlias(type, issuers, socket);
        }

        @Override
        public X509Certificate[] getCertificateChain(String alias) {
            return keys.getCertificateChain(alias);
        }

        @Override
        public PrivateKey getPrivateKey(String alias) {
            return keys.getPrivateKey(alias);
        }
    }

    private static KeyStore empty() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static List<Certificate> certificates(Path file, String what) throws CertificateException {
        byte[] text = read(file, what).getBytes(StandardCharsets.UTF_8);
        try {
            List<Certificate> found = new ArrayList<>(
                CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(text)));
            if (!found.isEmpty()) {
                return found;
            }
        } catch (CertificateException error) {
            throw bad(what, file, "holds no readable certificate (" + error.getMessage() + ")");
        }
        throw bad(what, file, "holds no certificate (-----BEGIN CERTIFICATE-----)");
    }

    private PrivateKey privateKey() {
        Matcher found = KEY.matcher(read(key, "private key"));
        if (!found.find()) {
            throw bad("private key", key, "holds no private key (-----BEGIN PRIVATE KEY-----)");
        }
        if (!found.group(1).isEmpty()) {
            throw bad("private key", key, "has the form " + found.group(1).trim()
                + ", which Java cannot read: convert it with `openssl pkcs8 -topk8 -nocrypt`");
        }
        PKCS8EncodedKeySpec spec;
        try {
            spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(found.group(2)));
        } catch (IllegalArgumentException error) {
            throw bad("private key", key, "is not Base64 between its first and last line");
        }
        for (String algorithm : List.of("EC", "RSA", "EdDSA")) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(spec);
            } catch (GeneralSecurityException other) {
                // The next algorithm may fit.
            }
        }
        throw bad("private key", key, "is of none of the kinds EC, RSA and EdDSA");
    }

    /** Signs and verifies, so that a key of another certificate is found before any connection. */
    private void checkPair(Certificate certificate, PrivateKey privateKey) throws GeneralSecurityException {
        PublicKey publicKey = certificate.getPublicKey();
        String algorithm = switch (privateKey.getAlgorithm()) {
            case "EC" -> "SHA256withECDSA";
            case "RSA" -> "SHA256withRSA";
            default -> "EdDSA";
        };
        boolean fits = false;
        try {
            Signature signature = Signature.getInstance(algorithm);
            signature.initSign(privateKey);
            signature.update((byte) 1);
            byte[] signed = signature.sign();
            signature.initVerify(publicKey);
            signature.update((byte) 1);
            fits = signature.verify(signed);
        } catch (java.security.InvalidKeyException | java.security.SignatureException error) {
            // Another kind of key, so it does not fit.
        }
        if (!fits) {
            throw bad("private key", key, "does not belong to the certificate " + this.certificate);
        }
    }

    private static String read(Path file, String what) {
        try {
            return Files.readString(file, StandardCharsets.ISO_8859_1);
        } catch (NoSuchFileException error) {
            throw bad(what, file, "does not exist");
        } catch (IOException error) {
            throw bad(what, file, "cannot be read: " + error.getMessage());
        }
    }

    private static IllegalArgumentException bad(String what, Path file, String fault) {
        return new IllegalArgumentException("the " + what + " file " + file + " " + fault);
    }

    /** Explains a fault of TLS: what was found, and what to do. */
    static String explain(SSLException error) {
        StringBuilder all = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            all.append(' ').append(cause.getMessage());
        }
        String text = all.toString().toLowerCase(Locale.ROOT);
        if (text.contains("unrecognized ssl message") || text.contains("not an ssl/tls record")
            || text.contains("unsupported or unrecognized")) {
            return "it answered with something that is not TLS: if it is a plain listener, leave out tls:";
        }
        if (text.contains("validity check failed") || text.contains("certificateexpired")
            || text.contains("notafter")) {
            return "its certificate has expired: renew it, or set this machine's clock";
        }
        if (text.contains("no subject alternative") || text.contains("no name matching")) {
            return "its certificate is for another name (" + Text.plain(String.valueOf(error.getMessage()))
                + "): use that name, or give it (tlsServerName)";
        }
        if (text.contains("certification path") || text.contains("path does not chain")
            || text.contains("trustanchors")) {
            return "its certificate is not of an authority that this client trusts: give the certificate of the"
                + " authority that signed it (tlsCa)";
        }
        if (text.contains("unknown_ca")) {
            return "it does not know the authority of this client's certificate: show one of an authority in its"
                + " tls.client_ca (tlsCertificate)";
        }
        if (text.contains("certificate_required") || text.contains("handshake_failure")) {
            return "it asks for a client certificate, or has no version of TLS in common: give a certificate"
                + " (tlsCertificate)";
        }
        if (text.contains("bad_certificate") || text.contains("certificate_unknown")
            || text.contains("decrypt_error")) {
            return "it does not believe this client's certificate: " + Text.plain(String.valueOf(error.getMessage()));
        }
        return Text.plain(String.valueOf(error.getMessage()));
    }
}
