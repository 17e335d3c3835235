package limits

// Bounds of the answer of a server, in bytes.
const (
	// Headers of an answer by HTTP. Lines of a few bytes take 16 times as much memory once they are read.
	Headers = 64 << 10
	// ErrorBody is an answer by HTTP whose status is an error.
	ErrorBody = 64 << 10
	// ACMEBody is an answer of an ACME server that is neither an order nor a chain. ACMEOrder is an order, which lists
	// an identifier and an authorization for each name. A chain has ChainPEM.
	ACMEBody  = 64 << 10
	ACMEOrder = 1 << 20
	// VaultBody is an answer of Vault: a chain of ChainPEM, and the certificate and its issuer once more.
	VaultBody = 256 << 10
	// VenafiBody is an answer of a Venafi server: the policy of a zone lists what is allowed.
	VenafiBody = 1 << 20
	// WebhookBody is an answer of a DNS-01 webhook, which may repeat its configuration.
	WebhookBody = 1 << 20
	// ShortBody is an answer of acme-dns: only its status counts.
	ShortBody = 64 << 10
	// DNSMessage is an answer of a DNS server.
	DNSMessage = 64<<10 - 1
	// ProgramLine is a line of a DNS provider's program, with its end.
	ProgramLine = 1 << 20
	// DNSProviderBody is an answer of the API of a DNS provider that chancery-dns asks itself: a page of records.
	DNSProviderBody = 4 << 20
	// RevocationBody is an answer of an OCSP responder, or a certificate behind a URL. RevocationList is a CRL.
	RevocationBody = 64 << 10
	RevocationList = 64 << 20
	// WaitsBody is what a controller answers to kubectl chancery waits: 100,000 waits have about 30 MB.
	WaitsBody = 64 << 20
	// ContainerLog is what is read of the log of a container.
	ContainerLog = 5 << 20
	// SelfCheckBody is an answer to the self check of HTTP-01: the right one has some hundred bytes.
	SelfCheckBody = 4 << 10
)

// Bounds of what an answer lists.
const (
	// FurtherAuthorizations is how many authorizations an order has besides two for each of its names.
	FurtherAuthorizations = 10
	// Profiles is how many profiles a directory lists, Alternates how many alternate chains are known of a certificate.
	Profiles   = 100
	Alternates = 8
	// NameServers is how many name servers a zone has, Addresses at how many addresses of each family each is asked.
	NameServers = 32
	Addresses   = 8
	// CNAMEs is how many CNAMEs are followed in one answer, and Aliases how many such answers in a row: longer chains
	// are a mistake, and resolvers give up too.
	CNAMEs  = 10
	Aliases = 10
)

// What several rows say.
const (
	failed  = "The call fails, and is tried again with a back-off"
	linear  = "Linear"
	decoded = "Linear: read, decoded, and dropped"
)

// answers are the rows about servers of issuers, and about all that speak HTTP.
func answers() []Row {
	const acme = "the ACME server of an issuer"
	return []Row{
		{
			What: "Headers of an answer by HTTP, from any server", Who: "each server that is asked",
			Numbers: []Number{held("headers", Headers, "bytes", Refused)}, Costs: "16 bytes of memory for each, until the call is finished", Above: failed,
			Tests: []string{"TestAnswersHaveBounds", "TestHeadersAreBounded", "TestNetworkIsReadWithinBounds"},
			Fuzz:  []string{"FuzzLinks", "FuzzNonce"},
		},
		{
			What: "Wait that an answer asks for, by `Retry-After` or in its own way", Who: "each server that is asked", Costs: "None but the wait",
			Numbers: []Number{
				untried("wait of an order", 7, "days", ByGolden), untried("wait of an account", 1, "hour", ByGolden), untried("wait of a poll", 10, "minutes", ByGolden),
			},
			Bound: "%s for an Order, a Challenge, renewal information; %s for an ACME account, a revocation, Vault, Venafi; %s for a poll, a DNS provider",
			Above: "The server is asked again after the bound, or up to a tenth later", Tests: []string{"TestWaits"}, Fuzz: []string{"FuzzRetryAfter"},
		},
		{
			What: "Body of an answer that is an error", Who: "each server that is asked", Numbers: []Number{held("error", ErrorBody, "bytes", Cut)},
			Costs: decoded, Above: "The rest is not read. The status counts", Tests: []string{"TestAnswersHaveBounds"},
			Fuzz: []string{"FuzzParseProblem", "FuzzVenafiFailure", "FuzzAWSError"},
		},
		{
			What: "Body of another answer of an ACME server: an order, a chain, any other", Who: acme,
			Numbers: []Number{
				held("ACME order", ACMEOrder, "bytes", Refused), held("ACME chain", ChainPEM, "bytes", Refused), held("ACME answer", ACMEBody, "bytes", Refused),
			},
			Costs: decoded,
			Above: "The Order or the issuer says that the answer is too large", Tests: []string{"TestAnswersAreBounded", "TestAnswersCostNoSquare"},
			Fuzz: []string{"FuzzOrder", "FuzzParseChain", "FuzzAuthorization", "FuzzRenewalInfo"},
		},
		{
			What: "Authorizations of an order, profiles of a directory, alternate chains", Who: acme,
			Numbers: []Number{
				held("further authorizations", FurtherAuthorizations, "", Refused), held("profiles", Profiles, "", Refused), held("alternates", Alternates, "", Cut),
			},
			Bound: "two for each name and %s more, %s, %s", Costs: linear,
			Above: "The Order or the issuer says that the answer is too large. Further alternates are not asked for",
			Tests: []string{"TestAuthorizationsAreBounded", "TestAnswersAreBounded", "TestADirectoryIsBounded", "TestAlternatesAreBounded", "TestAnswersCostNoSquare"},
			Fuzz:  []string{"FuzzOrder", "FuzzDirectory", "FuzzLinks"},
		},
		{
			What: "Body of an answer of Vault", Who: "the Vault server of an issuer", Numbers: []Number{held("answer of Vault", VaultBody, "bytes", Refused)},
			Costs: decoded, Above: failed, Tests: []string{"TestSignRefused", "TestAnswersOfVaultCostNoSquare"},
			Fuzz: []string{"FuzzSigned"},
		},
		{
			What: "Body of an answer of a Venafi server", Who: "the Venafi server of an issuer", Numbers: []Number{held("answer of Venafi", VenafiBody, "bytes", Refused)},
			Costs: decoded, Above: failed, Tests: []string{"TestTPPFailures"},
			Fuzz: []string{"FuzzVenafiToken", "FuzzVenafiFailure"},
		},
		{
			What: "Body of an answer of a DNS-01 webhook, of acme-dns", Who: "who runs the server",
			Numbers: []Number{held("answer of a webhook", WebhookBody, "bytes", Refused), held("answer of acme-dns", ShortBody, "bytes", Cut)},
			Costs:   decoded, Above: failed + ". Of acme-dns the rest is not read: the status counts", Parser: "that of encoding/json",
			Tests: []string{"TestAnswersHaveBounds", "TestAnswersOfWebhooksCostNoSquare", "TestAnswersOfAcmeDNSCostNoSquare"},
		},
	}
}

// others are the rows about servers, and programs, that others than issuers name.
func others() []Row {
	return []Row{
		{
			What: "Body of the answer to a self check of HTTP-01", Who: "the owner of the name", Numbers: []Number{held("self check", SelfCheckBody, "bytes", Refused)},
			Costs: "As much as the right answer is read", Above: "The answer counts as wrong", Tests: []string{"TestSelfCheck"},
			Parser: "it is compared",
		},
		{
			What: "Line of a DNS provider's program, with its end", Who: "the program", Numbers: []Number{held("line of a program", ProgramLine, "bytes", Refused)},
			Costs: linear, Above: "The program is ended, and the call fails", Tests: []string{"TestALongLineEndsTheProgram"},
			Fuzz: []string{"FuzzProgramAnswer", "FuzzServe", "FuzzSteady", "FuzzLogLines"},
		},
		{
			What: "Answer of a DNS server", Who: "the owner of the zone", Numbers: []Number{untried("DNS message", DNSMessage, "bytes", ByProtocol)},
			Costs: decoded, Above: "It is no DNS message: the question is asked again", Tests: []string{"TestAnswersOfDNSCostNoSquare", "TestChainsOfCNAMEsGrow", "TestRecordsGrow"},
			Fuzz: []string{"FuzzDNSAnswer", "FuzzPersistRecord", "FuzzCAA"},
		},
		{
			What: "CRL, OCSP answer, or certificate above another, which `kubectl chancery inspect` asks for", Who: "who has made the certificate",
			Numbers: []Number{
				held("CRL", RevocationList, "bytes", Refused), held("OCSP answer", RevocationBody, "bytes", Refused), held("issuing certificate", RevocationBody, "bytes", Refused),
			},
			Costs: linear,
			Above: "`inspect` says that the answer is too large", Tests: []string{"TestLongAnswersOfURLs"},
			Parser: "those of crypto/x509 and golang.org/x/crypto/ocsp",
		},
		{
			What: "Name servers of a zone, addresses of each, CNAMEs in one answer, such answers in a row", Who: "the owner of the zone",
			Numbers: []Number{
				held("name servers", NameServers, "", Refused), held("addresses", Addresses, "", Cut), held("CNAMEs in an answer", CNAMEs, "", Cut), held("CNAMEs in a row", Aliases, "", Refused),
			},
			Bound: "%s, %s of each family, %s, %s", Costs: "A question each", Above: "The self check says so; further addresses are not asked",
			Tests: []string{"TestTooManyNameServers", "TestAddressesAreFew", "TestTooManyCNAMEs", "TestChainsOfCNAMEsGrow"},
			Fuzz:  []string{"FuzzDNSAnswer"},
		},
	}
}
