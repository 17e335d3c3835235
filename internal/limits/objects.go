package limits

// Bounds of one Certificate. The API server holds them: the markers in api/certmanager/v1 say the same numbers.
const (
	// CertificateNames is how many names of each type a Certificate has. A certificate with as many names of 25 bytes
	// has 36 KB, and is sent with each TLS handshake.
	CertificateNames = 1000
)

// Bounds of PEM texts, in bytes, before nothing is decoded: decoding costs more than linear time in hostile input (spec
// appendix C).
const (
	// CertificatePEM is one certificate.
	CertificatePEM = 36500
	// PrivateKeyPEM is a private key.
	PrivateKeyPEM = 13000
	// ChainPEM is a certificate with its intermediates.
	ChainPEM = 95000
	// BundlePEM is a bundle of trusted certificates.
	BundlePEM = 330000
)

// Solvers is how many solvers an ACME issuer has. The API server holds it.
const Solvers = 1000

func objects() []Row {
	const (
		certificates = "who creates Certificates"
		issuers      = "who creates Issuers"
		secrets      = "who writes Secrets"
		refused      = "The API server refuses the object. One that is stored already stays as it is, and can be edited elsewhere"
	)
	return []Row{
		{
			What: "`ipAddresses`, `emailAddresses` and `otherNames` of a Certificate", Who: certificates,
			Bound: count(CertificateNames, "entries each"), Costs: "Linear", Above: refused, Tests: []string{"TestSchemaKeepsToTheLimits"},
		},
		{
			What: "`solvers` of an ACME issuer", Who: issuers,
			Bound: count(Solvers, "solvers"), Costs: "Linear for each name", Above: refused, Tests: []string{"TestSchemaKeepsToTheLimits"},
		},
		{
			What: "PEM of a certificate, of a key, of a chain, of a bundle", Who: secrets,
			Bound: bytes(CertificatePEM) + ", " + bytes(PrivateKeyPEM) + ", " + bytes(ChainPEM) + ", " + bytes(BundlePEM),
			Costs: "Less than a second of CPU for the largest", Above: "Nothing is decoded. Who needs it says that the text is too large",
			Tests: []string{"TestOversizedInputIsNotDecoded", "TestGHSA_r4pg_vg54_wxx4"},
		},
	}
}
