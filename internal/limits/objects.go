package limits

// Bounds of one Certificate. The API server holds them: the markers in api/certmanager/v1 say the same numbers.
const (
	// CertificateNames is how many names of each type a Certificate has. A certificate with as many names of 25 bytes
	// has 36 KB, and is sent with each TLS handshake.
	CertificateNames = 1000
)

// Bounds of the Certificates that one Ingress, Gateway or ListenerSet asks for by annotations. The API server has no
// such bounds for an Ingress.
const (
	// ShimEntries is how many entries of spec.tls, or listeners, the object has.
	ShimEntries = 1000
	// ShimHosts is how many hosts these entries have in all.
	ShimHosts = 10_000
	// ShimCertificates is how many Secrets these entries name: each Secret is for one Certificate.
	ShimCertificates = 1000
	// ShimMetadata is the size in bytes of the labels and annotations that each of these Certificates gets: so the
	// Certificate stays smaller than ObjectBytes.
	ShimMetadata = 128 << 10
	// ShimBytes is the size in bytes of all names, labels and annotations of these Certificates together: each
	// Certificate gets the object's labels and what the object's annotations ask for.
	ShimBytes = 4 << 20
)

// Bounds of PEM texts, in bytes. Nothing of a larger text is decoded: decoding of hostile input takes more than linear
// time (spec appendix C).
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

// Bounds of RSA keys: the time of a signature grows with the cube of the bits, and with the number of primes.
const (
	// RSABits is how many bits the modulus has.
	RSABits = 8192
	// RSAPrimes is how many primes.
	RSAPrimes = 2
)

// Roots is how many certificates a CA hands on in ca.crt, links included: each is in every Secret of the CA's leaves.
const Roots = 10

// Credentials is how large the names and values of the credentials of a DNS provider program are together, in bytes.
const Credentials = 64 << 10

// CredentialBytes is the size of one entry of a Secret that holds a credential: a token, a password, a key file.
const CredentialBytes = 64 << 10

const (
	// Solvers is how many solvers an ACME issuer has. The API server holds it.
	Solvers = 1000
	// SolverBytes is how large a solver is that Challenges are made with, as JSON. The Challenge for each name has a
	// copy.
	SolverBytes = 64 << 10
	// SolversBytes is how large the solvers of all Challenges of an Order are together: 4 KiB for each of
	// CertificateNames.
	SolversBytes = 4 << 20
)

const (
	// IssuerURLs is how many addresses an issuer has for certificates, of each kind. The API server holds it.
	IssuerURLs = 100
	// SelectorNames is how many names, and how many zones, the selector of one solver has. The API server holds it.
	SelectorNames = 1000
	// ObjectBytes is how much memory an object takes, without the managed fields. In an issuer, the largest caBundle
	// takes most of it.
	ObjectBytes = 512 << 10
	// OrderBytes is how much memory an Order takes. One of CertificateNames names has what the CA says of each: three
	// challenges with their addresses take a kilobyte.
	OrderBytes = 3 * ObjectBytes
)

func objects() []Row {
	const (
		issuers = "who creates Issuers"
		secrets = "who writes Secrets"
		refused = "The API server refuses the object. One that is stored already stays as it is, and can be edited elsewhere"
	)
	return []Row{
		{
			What: "Names of each type, entries of `subject` and of `nameConstraints` of a Certificate", Who: certificates,
			Numbers: []Number{held("names", CertificateNames, "entries each", Refused)}, Costs: "Linear", Above: refused,
			Tests: []string{"TestSchemaKeepsToTheLimits", "TestStoredLargeObjectsStayUpdatable", "TestOrdersGrow"},
			Fuzz:  []string{"FuzzAltNames", "FuzzParseLiteralSubject", "FuzzIdentifiers"},
		},
		{
			What: "Certificates that name one Secret", Who: certificates, Bound: "a quota of Certificates", Costs: "n·log n, and a look at one as much as if it were alone",
			Above: "Ten of them are named", Tests: []string{"TestClaimsGrow", "TestCertificatesOfOneSecretAreVisitedOnce", "TestExplanationsCostNoSquare"},
			Parser: "names are compared",
		},
		{
			What: "`solvers` of an ACME issuer", Who: issuers,
			Numbers: []Number{held("solvers", Solvers, "solvers", Refused), held("names of a selector", SelectorNames, "names", Refused)},
			Bound:   "%s, each with %s and as many zones", Costs: "Linear, for all names of an Order together",
			Above: refused, Tests: []string{"TestSchemaKeepsToTheLimits", "TestSelectionGrows", "TestLongNamesAreInNoZone"},
			Parser: "names are compared",
		},
		{
			What: "Addresses for certificates of an issuer: revocation lists, OCSP responders, the CA's certificate", Who: issuers,
			Numbers: []Number{held("addresses for certificates", IssuerURLs, "of each kind", Refused)}, Costs: "Linear, in each certificate", Above: refused, Tests: []string{"TestSchemaKeepsToTheLimits"},
			Parser: "they are copied",
		},
		{
			What: "An object of any kind that is watched, with all its labels and entries", Who: "who creates objects of the kind",
			Numbers: []Number{held("object", ObjectBytes, "bytes", Refused), held("Order", OrderBytes, "bytes", Refused)},
			Bound:   "%s in memory, an Order %s. Of many, a quota of the kind", Costs: "Linear: decoded, and kept in memory",
			Above: "Little of it is kept: its name, its annotations, its status. Nothing is done for it until it is smaller. A Certificate and an issuer " +
				"are not ready and say so; an event does for any other. It can be deleted",
			Tests:  []string{"TestBound", "TestAnOrderOfManyNamesFits", "TestEveryKindIsBounded", "TestLargeIssuer", "TestLargeCertificate"},
			Parser: "Kubernetes' decoder",
		},
		{
			What: "Solver that is chosen for a name, with its selector and the configuration of a webhook", Who: issuers, Numbers: []Number{held("solver", SolverBytes, "bytes", Refused)},
			Costs: "Linear, and the Challenge for each name of each Certificate has a copy",
			Above: "The Order makes no Challenge, and says so. The issuer can be edited", Tests: []string{"TestALargeSolverIsRefused"},
			Fuzz: []string{"FuzzHostsIn", "FuzzNameserver"},
		},
		{
			What: "Solvers of all Challenges of an Order together", Who: "who creates Issuers and Certificates", Numbers: []Number{held("solvers of an Order", SolversBytes, "bytes", Refused)},
			Costs: "Linear, in the API server; in memory, equal ones are kept once. Of the Challenges, 20 are made in a pass, or those with 256 KiB of solvers",
			Above: "The Order makes no Challenge, and says so", Tests: []string{"TestCopiesOfSolversAreBounded", "TestChallengesAreMadeAFewAtATime", "TestALookEncodesFewSolvers", "TestALookAtAChallengeEncodesNoSolver", "TestEqualSolversAreKeptOnce", "TestEqualComparesBytesAtOnce"}, Parser: "they are copied",
		},
		{
			What: "`caBundle` of an issuer or a webhook, and its entry of a Secret", Who: issuers, Numbers: []Number{held("CA bundle", BundlePEM, "bytes", Refused)}, Costs: "Linear",
			Above: "The API server refuses the issuer. A bundle that is stored already, or is in a Secret, is not read: the issuer is not ready and says so; the Challenge of a webhook does",
			Tests: []string{"TestSchemaKeepsToTheLimits", "TestLargeInputs", "TestProbe", "TestDirectMistakes", "TestABundleIsBounded"},
			Fuzz:  []string{"FuzzDecodeChain", "FuzzBundle"},
		},
		{
			What: "Entry of a Secret with a credential: a token, a password, a key of an account outside ACME", Who: secrets, Numbers: []Number{held("credential", CredentialBytes, "bytes", Refused)},
			Costs: "Linear", Above: "It is not used: the issuer, the Challenge or the Certificate says so",
			Tests: []string{"TestCredentialEntriesAreBounded", "TestLargeInputs", "TestProbe", "TestDirectMistakes"},
			Fuzz:  []string{"FuzzTSIGKey"},
		},
		{
			What: "Encoded request of a CertificateRequest or a CertificateSigningRequest", Who: "who creates them", Numbers: []Number{held("request", ChainPEM, "bytes", Refused)},
			Costs: "Linear in names and usages", Above: "The request fails", Tests: []string{"TestOversizedInputIsNotDecoded", "TestUsagesGrow", "TestRequestsGrow"},
			Fuzz: []string{"FuzzDecodeCSR", "FuzzInspectCSR", "FuzzSubjectsEqual"},
		},
		{
			What: "Custom fields for Venafi in annotations", Who: "who creates issuers and requests",
			Numbers: []Number{untried("annotations", 256<<10, "bytes", ByKubernetes)},
			Bound:   "%s, as Kubernetes has it for all annotations of an object", Costs: "Linear", Above: "The API server refuses the object",
			Tests: []string{"TestFieldsGrow"},
			Fuzz:  []string{"FuzzCustomFields"},
		},
		{
			What: "credentials of a DNS provider program, names and values together", Who: secrets,
			Numbers: []Number{held("credentials of a program", Credentials, "bytes", Refused)}, Costs: "110 bytes for each, in each process: what is taken out of its errors and its log",
			Above: "The provider is not used, and the Challenge says so. It is tried again", Tests: []string{"TestCredentialsAreBounded"},
			Fuzz: []string{"FuzzRedact"},
		},
	}
}

// keys are the rows about certificates and keys in Secrets.
func keys() []Row {
	const secrets = "who writes Secrets"
	return []Row{
		{
			What: "PEM of a certificate, of a key, of a chain, of a bundle", Who: secrets,
			Numbers: []Number{
				held("PEM of a certificate", CertificatePEM, "bytes", Refused), held("PEM of a key", PrivateKeyPEM, "bytes", Refused),
				held("PEM of a chain", ChainPEM, "bytes", Refused), held("PEM of a bundle", BundlePEM, "bytes", Refused),
			},
			Costs: "Less than a second of CPU for the largest", Above: "Nothing is decoded. Who needs it says that the text is too large",
			Tests: []string{"TestOversizedInputIsNotDecoded", "TestGHSA_r4pg_vg54_wxx4", "TestFitGrows"},
			Fuzz:  []string{"FuzzDecodeChain", "FuzzFirstOf", "FuzzDecodePrivateKey", "FuzzBundle"},
		},
		{
			What: "RSA key of a CA issuer, or of a requester that signs for itself", Who: secrets,
			Numbers: []Number{held("RSA bits", RSABits, "bits", Refused), held("RSA primes", RSAPrimes, "primes", Refused)}, Costs: "A signature takes as long as the cube of the bits: a tenth of a second for the largest",
			Above: "The key is not used, and the issuer or the request says so", Tests: []string{"TestSlowKeysAreRefused"},
			Fuzz: []string{"FuzzDecodePrivateKey"},
		},
		{
			What: "Certificates in `ca.crt` of a CA whose issuer hands on older roots", Who: secrets,
			Numbers: []Number{held("roots", Roots, "certificates", Refused)}, Costs: "Linear, in `ca.crt` of each certificate that the issuer signs",
			Above: "The issuer signs nothing, and the request says so. Where Chancery writes the Secret, those are left out that expire first",
			Tests: []string{"TestRootsOverlapOnDemand", "TestSucceed", "TestSucceedIsBounded"}, Fuzz: []string{"FuzzBundle"},
		},
	}
}

// shims are the rows about Ingresses, Gateways and ListenerSets.
func shims() []Row {
	const (
		users = "who creates Ingresses, Gateways or ListenerSets"
		left  = "Nothing is created, changed or deleted for the object. Its certificates are renewed as before. One event `TooLarge` says so"
	)
	return []Row{
		{
			What: "`spec.tls` of an Ingress, listeners of a Gateway or a ListenerSet", Who: users,
			Numbers: []Number{held("entries", ShimEntries, "entries", Refused)}, Costs: "Linear. Above the bound nothing is read, and nothing is kept of them",
			Above: left, Tests: []string{"TestTooLarge", "TestShimGrows", "TestFarAboveTheBound", "TestThinTooLarge", "TestHugeIngresses"},
			Parser: "Kubernetes' decoder",
		},
		{
			What: "Hosts of these entries, and Secrets that they name, each of which is for a Certificate", Who: users,
			Numbers: []Number{held("hosts", ShimHosts, "hosts", Refused), held("Secrets of entries", ShimCertificates, "Secrets", Refused)},
			Bound:   "%s and %s in all", Costs: "Linear",
			Above: left, Tests: []string{"TestTooLarge", "TestShimGrows"},
			Parser: "names are compared",
		},
		{
			What: "Labels, annotations and hosts of all Certificates of such an object", Who: users,
			Numbers: []Number{held("metadata for each", ShimMetadata, "bytes", Refused), held("metadata of all", ShimBytes, "bytes", Refused)},
			Bound:   "%s of labels and annotations for each, %s in all", Costs: "Linear", Above: left,
			Tests: []string{"TestTooLarge"},
			Fuzz:  []string{"FuzzAnnotations"},
		},
		{
			What: "Names in one annotation of such an object, and of one Certificate that it asks for", Who: users,
			Numbers: []Number{held("names of an entry", CertificateNames, "names of each type", Refused)}, Costs: "Linear",
			Above: "The same; for a single annotation the event is `BadConfig`", Tests: []string{"TestTooLarge", "TestWarningsAreFew", "TestShimGrows"},
			Fuzz: []string{"FuzzAnnotations"},
		},
		{
			What: "Warnings about such an object", Who: users, Numbers: []Number{held("warnings", Listed, "at a time", Cut)}, Bound: "%s, and one that says how many more there are",
			Costs: "An event each, once", Above: "The others are told once the first are corrected", Tests: []string{"TestWarningsAreFew"},
			Fuzz: []string{"FuzzAnnotations"},
		},
	}
}
