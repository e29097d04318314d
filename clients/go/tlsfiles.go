package snowbank

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// TLSFiles returns the TLS options of files in PEM: the authorities to trust, and the client's own
// certificate with its key. Each may be "". Without caFile the system's authorities count. The
// certificate is read again for each connection, so that it can be renewed while the client runs.
// An OptionError says which file is missing or does not fit.
func TLSFiles(caFile, certFile, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, &OptionError{Option: "TLS", Problem: err.Error(), cause: err}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, optionError("TLS", "%s holds no certificate in PEM", caFile)
		}
	}
	if certFile == "" && keyFile == "" {
		return config, nil
	}
	if certFile == "" || keyFile == "" {
		return nil, optionError("TLS", "found the certificate %q and the key %q, allowed: both or neither", certFile, keyFile)
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			problem := optionError("TLS", "%q and %q are no certificate with its key: %s", certFile, keyFile, err)
			problem.cause = err
			return nil, problem
		}
		return &pair, nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	_, err := read()
	return config, err
}
