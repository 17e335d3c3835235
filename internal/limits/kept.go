package limits

// Bounds of what is kept between calls and passes, and of calls under way.
const (
	// SecretBytes is the size of all Secrets together that are kept whole.
	SecretBytes = 32 << 20
	// Sessions is how many sessions, accounts or key pairs are kept for the issuers of one type, and SessionBytes how
	// many bytes these take. NamespaceSessions and NamespaceSessionBytes are the same for one namespace.
	Sessions              = 1024
	SessionBytes          = 16 << 20
	NamespaceSessions     = 256
	NamespaceSessionBytes = 4 << 20
	// ListBytes is how large a page of a list of objects is, where it has more than one.
	ListBytes = 8 << 20
	// PodRights is how many answers are kept about whether a ServiceAccount may have certificates of a signer.
	PodRights = 20_000
	// PodServices is how many Services the certificate of a Pod has names of.
	PodServices = 10
	// Zones is how many names are kept, each with its zone, ZoneServers how many zones, with their servers' addresses.
	Zones       = 10_000
	ZoneServers = 2_000
	// SavedObject is an object that takeover has saved, in bytes: the API server stores 1.5 MiB, and JSON may be longer
	// than what it stores. InspectedFile is what inspect reads from its standard input.
	SavedObject   = 8 << 20
	InspectedFile = 1 << 20
	// IngressClasses is how many Ingress classes are kept; the controllers of these classes refuse exact paths.
	IngressClasses = 1000
	// Parks is how many pauses are kept of ACME accounts that no issuer uses any more.
	Parks = 10_000
	// Connections is how many connections to a port are open at once: that of a responder, of metrics, of probes, of
	// profiles.
	Connections = 1024
	// WebhookConnections is how many connections to the port of the webhook are open at once.
	WebhookConnections = 256
	// Review is how large a request of the API server to the webhook is, in bytes, as that of a client to the API
	// server; of those above SmallReview, two are read at a time.
	Review      = 3 << 20
	SmallReview = 32 << 10
	// Calls is how many calls leave the process at once, and CallBytes how much memory all of them may take together.
	Calls     = 1024
	CallBytes = 256 << 20
	// OneCall is how much memory a call takes at most if its answer has Headers and a body of the same size: headers in
	// lines of a few bytes take 16 times their length.
	OneCall = 1 << 20
)

// certificates is who asks for certificates.
const certificates = "who creates Certificates"

// kept are the rows about what is kept between calls and passes.
func kept() []Row {
	const (
		issuers = "who creates Issuers"
		again   = "What was used the longest ago is dropped, and made again when it is needed"
	)
	return []Row{
		{
			What: "Sessions with Vault and Venafi servers, key pairs of CA issuers: of each type of issuer", Who: issuers,
			Numbers: []Number{
				held("sessions", Sessions, "issuers", Dropped), held("bytes of sessions", SessionBytes, "bytes", Dropped),
				held("sessions of a namespace", NamespaceSessions, "issuers", Dropped), held("bytes of a namespace's sessions", NamespaceSessionBytes, "bytes", Dropped),
			},
			Bound: "%s with %s; of one namespace %s with %s",
			Costs: "A digest of the issuer, its connections, its credentials and tokens, and 4 times its CA bundle. It goes with the issuer, and after a day without use",
			Above: again + ". A namespace loses its own first",
			Tests: []string{"TestKeptToTheNumber", "TestKeptIsBounded", "TestKeptGrows", "TestSessionsAreBounded", "TestAllOfASessionCounts", "TestAllOfAnAccountCounts",
				"TestAllOfAPairCounts", "TestSignersForgetIssuers"},
			Parser: "nothing is parsed",
		},
		{
			What: "ACME accounts and the connections to their servers", Who: issuers, Bound: "one for each issuer that exists",
			Costs: "Linear", Above: "They go with the last issuer, or when it names another server", Tests: []string{"TestServerGoesWithItsLastAccount", "TestOfAParkOnlyTheTimeIsKept"},
			Parser: "nothing is parsed",
		},
		{
			What: "Pauses that ACME servers have asked for, of accounts that no issuer uses any more", Who: "who creates and edits Issuers",
			Numbers: []Number{held("parks", Parks, "accounts", Cut)}, Costs: "A digest, a time and the reason, until the pause ends",
			Above: "The shortest are forgotten, up to a tenth of them", Tests: []string{"TestParksAreBounded", "TestAParkOutlivesItsIssuer"},
			Parser: "nothing is parsed",
		},
		{
			What: "Secrets that are kept whole: credentials of issuers, next private keys", Who: "who writes Secrets",
			Numbers: []Number{held("Secrets", SecretBytes, "bytes", Dropped)}, Costs: "Its size and 2 KiB, for an hour", Above: again, Tests: []string{"TestBodiesAreBounded"},
			Parser: "Kubernetes' decoder",
		},
		{
			What: "Answers about whether a ServiceAccount may have certificates of a signer, and selectors of Services that Pods name", Who: "who runs Pods",
			Numbers: []Number{held("rights of ServiceAccounts", PodRights, "answers", Dropped)}, Costs: "A minute's answer and two questions to the API server, or 1 KiB for 5 seconds and one", Above: again,
			Tests: []string{"TestAnswersAreRemembered"}, Parser: "nothing is parsed",
		},
		{
			What: "Zones of names, servers of zones", Who: certificates, Numbers: []Number{held("zones of names", Zones, "names", Dropped), held("servers of zones", ZoneServers, "zones", Dropped)},
			Costs: "For the TTL, a day at most", Above: again, Tests: []string{"TestZoneIsCachedForItsTTL", "TestZonesAreBounded"},
			Parser: "nothing is parsed",
		},
		{
			What: "Orders that a CA has refused, which are tried again less often", Who: certificates,
			Bound: "one for each set of names of a namespace, for two weeks", Costs: "A digest and a time", Above: "It is forgotten",
			Tests:  []string{"TestRefusedSetsAreDigests"},
			Parser: "nothing is parsed",
		},
	}
}

// passing are the rows about what is read, waits or is under way.
func passing() []Row {
	return []Row{
		{
			What: "Owners and finalizers of a Secret with our label", Who: "who writes Secrets", Bound: "the controller, and one finalizer",
			Costs: "Linear: decoded once, and dropped", Above: "They are not kept", Tests: []string{"TestOwnersAreNotKept"},
			Parser: "Kubernetes' decoder",
		},
		{
			What: "CertificateSigningRequests for signers of somebody else", Who: "who creates CertificateSigningRequests",
			Bound: "the name and the signer", Costs: "Linear: decoded once, and dropped", Above: "Nothing else is kept",
			Tests: []string{"TestForeignRequestsAreNotKept"}, Parser: "Kubernetes' decoder",
		},
		{
			What: "Services that a volume of a Pod names (`chancery.dev/services`)", Who: "who creates Pods", Numbers: []Number{held("Services of a Pod", PodServices, "Services", Refused)},
			Costs: "A read of each, and of the Pod", Above: "The request is denied, and the kubelet says so", Tests: []string{"TestServicesAreFew"}, Parser: "nothing is parsed",
		},
		{
			What: "ClusterTrustBundles of somebody else", Who: "who may write ClusterTrustBundles, mostly administrators",
			Bound: "the name", Costs: "Linear: decoded once, and dropped", Above: "Nothing else is kept",
			Tests: []string{"TestForeignBundlesAreNotKept"}, Parser: "Kubernetes' decoder",
		},
		{
			What: "PodCertificateRequests that are finished, or for signers of somebody else", Who: "who runs Pods",
			Bound: "the name, the signer and the verdict", Costs: "Linear: decoded once, and dropped", Above: "Nothing else is kept",
			Tests: []string{"TestThin"}, Parser: "Kubernetes' decoder",
		},
		{
			What: "Pages of the lists that a start reads: each has as many objects as have room in it", Who: "who creates objects of any kind that is watched, and Secrets",
			Numbers: []Number{held("page of a list", ListBytes, "bytes", Refused)}, Costs: "Linear: read, decoded, and reduced before the next one",
			Above: "As many objects are asked for at a time as had room last, or an eighth as many. Beside a stored attack of 34 MB, 25 MB of them Ingresses, the first certificate after a start takes 1.5 to 2.0 s in place of 0.4 to 0.5", Tests: []string{"TestPagesAreBounded", "TestIngressesHoldUpNobody"},
			Parser: "Kubernetes' decoder",
		},
		{
			What: "Objects of one namespace that wait for a pass", Who: "who creates or changes objects in it",
			Bound: "none; namespaces take turns", Costs: "A pass for each, once, however often the object has changed meanwhile",
			Above: "An object of another namespace waits for one pass of each namespace at most", Tests: []string{"TestNamespacesTakeTurns", "TestTurnsGrow"},
			Parser: "nothing is parsed",
		},
		{
			What: "Objects that `takeover` has saved, compressed, in a Secret", Who: "who writes Secrets of the cluster resource namespace",
			Numbers: []Number{held("saved object", SavedObject, "bytes", Refused)}, Bound: "%s unpacked", Costs: "Linear", Above: "`takeover` says so, and restores nothing", Tests: []string{"TestSavedIsBounded"},
			Fuzz: []string{"FuzzSaved"},
		},
		{
			What: "Connections to the port of a responder, of metrics, of probes or of profiles", Who: "who reaches it",
			Numbers: []Number{held("connections to a port", Connections, "connections", Dropped)}, Costs: "36 KiB at most, with the headers of its request",
			Above:  "The one that has asked nothing for the longest time is closed",
			Tests:  []string{"TestTheQuietConnectionGivesWay", "TestConnectionsDoNotHideTheResponder", "TestResponderIsBounded", "TestPortsAreBounded"},
			Parser: "that of net/http, and of crypto/tls",
		},
		{
			What: "Connections to the port of the webhook that fills in who makes a CertificateRequest, and a request to it", Who: "who reaches it",
			Numbers: []Number{held("connections to the webhook", WebhookConnections, "connections", Dropped), held("review", Review, "bytes", Refused)},
			Costs:   "Linear. Of requests above 32 KiB, two are read at a time, and eight of all are decoded at a time",
			Above:   "As above. The API server does what the failure policy of the webhook says",
			Tests:   []string{"TestTheQuietConnectionGivesWay", "TestReviewsAreBounded", "TestReviewsTakeTurns", "TestReviewsCostNoSquare", "TestIdentityWithoutPolicies"},
			Parser:  "that of encoding/json",
		},
		{
			What: "Classes of Ingresses whose controllers refuse exact paths", Who: certificates,
			Numbers: []Number{held("classes", IngressClasses, "classes", Cut)}, Costs: "Its name", Above: "The path is tried both ways each time",
			Tests:  []string{"TestClassesAreBounded"},
			Parser: "nothing is parsed",
		},
		{
			What: "Calls that leave the process, at once", Who: "who creates Issuers and Certificates, or runs Pods",
			Numbers: []Number{
				untried("calls", Calls, "calls", ByShare), untried("bytes of calls", CallBytes, "bytes", ByShare),
				held("calls of a namespace", Calls/2, "calls", Waiting), held("bytes of a namespace's calls", CallBytes/2, "bytes", Waiting),
			},
			Bound:  "%s that take %s together; one namespace %s that take %s",
			Costs:  "1 MiB with an answer of 64 KiB, 2 MiB with Vault, 3 MiB with an ACME account, 8 MiB with Venafi",
			Above:  "They wait for their turn; a namespace without a call has one at once",
			Tests:  []string{"TestHalfOfTheCalls", "TestBytesOfCalls", "TestSilentServersDelayNobodyElse", "TestRoomForTheNextNamespace", "TestPickGrows"},
			Parser: "nothing is parsed",
		},
	}
}
