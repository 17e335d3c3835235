package limits

// Bounds of the answer of a server, in bytes.
const (
	// Headers of an answer by HTTP. Lines of a few bytes take 16 times as much memory once they are read.
	Headers = 64 << 10
	// ErrorBody is an answer by HTTP whose status is an error.
	ErrorBody = 64 << 10
	// ACMEBody is an answer of an ACME server that is neither an order nor a chain, ACMEOrder is an order. It lists an
	// identifier and an authorization for each name. A chain has ChainPEM.
	ACMEBody  = 64 << 10
	ACMEOrder = 1 << 20
	// VaultBody is an answer of Vault: a chain of ChainPEM, and the certificate and its issuer once more.
	VaultBody = 256 << 10
	// VenafiBody is an answer of a Venafi server: the policy of a zone lists what is allowed.
	VenafiBody = 1 << 20
	// WebhookBody is an answer of a DNS-01 webhook, which may repeat its configuration.
	WebhookBody = 1 << 20
	// ShortBody is an answer of which only the status counts: of acme-dns.
	ShortBody = 64 << 10
	// DNSMessage is an answer of a DNS server.
	DNSMessage = 64<<10 - 1
	// DNSProviderBody is an answer of the API of a DNS provider that chancery-dns asks itself: a page of records.
	DNSProviderBody = 4 << 20
	// RevocationBody is an answer of an OCSP responder, and a certificate by its address; RevocationList is a CRL.
	RevocationBody = 64 << 10
	RevocationList = 64 << 20
	// WaitsBody is what a controller answers to kubectl chancery waits: 100,000 waits have about 30 MB.
	WaitsBody = 64 << 20
	// ContainerLog is what is read of the log of a container.
	ContainerLog = 5 << 20
	// SelfCheckBody is an answer to the self check of HTTP-01: the right one has some hundred bytes.
	SelfCheckBody = 4 << 10
)

func answers() []Row {
	const (
		acme    = "the ACME server of an issuer"
		failed  = "The call fails, and is tried again with a back-off"
		linear  = "Linear"
		decoded = "Linear: read, decoded, and dropped"
	)
	return []Row{
		{
			What: "Headers of an answer by HTTP, from any server", Who: "each server that is asked",
			Bound: bytes(Headers), Costs: "16 bytes of memory for each, until the call is finished", Above: failed,
			Tests: []string{"TestAnswersHaveBounds", "TestHeadersAreBounded", "TestNetworkIsReadWithinBounds"},
			Fuzz:  []string{"FuzzLinks", "FuzzNonce"},
		},
		{
			What: "Wait that an answer asks for, by `Retry-After` or in its own way", Who: "each server that is asked", Costs: "None but the wait",
			Bound: "7 days for an Order, a Challenge, renewal information; 1 hour for an ACME account, a revocation, Vault, Venafi; 10 minutes for a poll, a DNS provider",
			Above: "The server is asked again after the bound, or up to a tenth later", Tests: []string{"TestWaits"}, Fuzz: []string{"FuzzRetryAfter"},
		},
		{
			What: "Body of an answer that is an error", Who: "each server that is asked", Bound: bytes(ErrorBody),
			Costs: decoded, Above: "The rest is not read. The status counts", Tests: []string{"TestAnswersHaveBounds"},
			Fuzz: []string{"FuzzParseProblem", "FuzzVenafiFailure", "FuzzAWSError"},
		},
		{
			What: "Body of another answer of an ACME server: an order, a chain, any other", Who: acme,
			Bound: bytes(ACMEOrder) + ", " + bytes(ChainPEM) + ", " + bytes(ACMEBody), Costs: decoded,
			Above: "The Order or the issuer says that the answer is too large", Tests: []string{"TestAnswersAreBounded", "TestAnswersCostNoSquare"},
			Fuzz: []string{"FuzzOrder", "FuzzParseChain", "FuzzAuthorization", "FuzzRenewalInfo"},
		},
		{
			What: "Authorizations of an order, profiles of a directory, alternate chains", Who: acme,
			Bound: "2 for each name and 10 more, 100, 8", Costs: linear,
			Above: "The Order or the issuer says that the answer is too large. Further alternates are not asked for",
			Tests: []string{"TestAnswersAreBounded", "TestADirectoryIsBounded", "TestAlternatesAreBounded", "TestAnswersCostNoSquare"},
			Fuzz:  []string{"FuzzOrder", "FuzzDirectory", "FuzzLinks"},
		},
		{
			What: "Body of an answer of Vault", Who: "the Vault server of an issuer", Bound: bytes(VaultBody),
			Costs: decoded, Above: failed, Tests: []string{"TestSignRefused", "TestAnswersOfVaultCostNoSquare"},
			Fuzz: []string{"FuzzSigned"},
		},
		{
			What: "Body of an answer of a Venafi server", Who: "the Venafi server of an issuer", Bound: bytes(VenafiBody),
			Costs: decoded, Above: failed, Tests: []string{"TestTPPFailures"},
			Fuzz: []string{"FuzzVenafiToken", "FuzzVenafiFailure"},
		},
		{
			What: "Body of an answer of a DNS-01 webhook, of acme-dns", Who: "who runs the server",
			Bound: bytes(WebhookBody) + ", " + bytes(ShortBody),
			Costs: decoded, Above: failed, Parser: "that of encoding/json",
			Tests: []string{"TestAnswersHaveBounds", "TestAnswersOfWebhooksCostNoSquare", "TestAnswersOfAcmeDNSCostNoSquare"},
		},
		{
			What: "Body of the answer to a self check of HTTP-01", Who: "the owner of the name", Bound: bytes(SelfCheckBody),
			Costs: "As much as the right answer is read", Above: "The answer counts as wrong", Tests: []string{"TestSelfCheck"},
			Parser: "it is compared",
		},
		{
			What: "Line of a DNS provider's program", Who: "the program", Bound: bytes(1 << 20),
			Costs: linear, Above: "The program is ended, and the call fails", Tests: []string{"TestALongLineEndsTheProgram"},
			Fuzz: []string{"FuzzProgramAnswer", "FuzzServe", "FuzzSteady", "FuzzLogLines"},
		},
		{
			What: "Answer of a DNS server", Who: "the owner of the zone", Bound: count(DNSMessage, "bytes"),
			Costs: decoded, Above: "It is no DNS message: the question is asked again", Tests: []string{"TestAnswersOfDNSCostNoSquare", "TestChainsOfCNAMEsGrow", "TestRecordsGrow"},
			Fuzz: []string{"FuzzDNSAnswer", "FuzzPersistRecord", "FuzzCAA"},
		},
		{
			What: "CRL, OCSP answer, or certificate above another, which `kubectl chancery inspect` asks for", Who: "who has made the certificate",
			Bound: bytes(RevocationList) + ", " + bytes(RevocationBody) + ", " + bytes(RevocationBody), Costs: linear,
			Above: "`inspect` says that the answer is too large", Tests: []string{"TestLongAnswersOfURLs"},
			Parser: "those of crypto/x509 and golang.org/x/crypto/ocsp",
		},
		{
			What: "Name servers of a zone, addresses of each, CNAMEs in one answer, such answers in a row", Who: "the owner of the zone",
			Bound: "32, 8 of each family, 10, 10", Costs: "A question each", Above: "The self check says so; further addresses are not asked",
			Tests: []string{"TestTooManyNameServers", "TestTooManyCNAMEs", "TestChainsOfCNAMEsGrow"},
			Fuzz:  []string{"FuzzDNSAnswer"},
		},
	}
}
